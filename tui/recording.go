package tui

import "github.com/failslow/falcon/themes"

// Recorder is what records this session.
type Recorder interface {
	Stopped() string // why it records nothing more; "" while it does
}

// hearRecorder says once that the recording has ended before the session.
func (m *Model) hearRecorder() {
	if m.opts.Recorder == nil || m.recorderOver {
		return
	}
	if why := m.opts.Recorder.Stopped(); why != "" {
		m.recorderOver = true
		m.notes.showNote(themes.Warn, "the recording has stopped: "+why)
	}
}
