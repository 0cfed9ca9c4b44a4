package tui

import "github.com/failslow/falcon/themes"

// Recorder is what records this session.
type Recorder interface {
	Stopped() string // why it records nothing more; "" while it does
}

// recordingMark says that this session is recorded, or no more: what is done
// here stays in a file.
func (m *Model) recordingMark() string {
	switch {
	case m.opts.Recorder == nil:
		return ""
	case m.opts.Recorder.Stopped() != "":
		return m.put(themes.Warn, "recording stopped") + "  "
	}
	word := " recording"
	if m.w < nameW {
		word = " rec"
	}
	if m.opts.ASCII {
		return m.put(themes.Header, "*"+word) + "  "
	}
	return m.put(themes.Bad, "●") + m.put(themes.Header, word) + "  "
}

// hearRecorder says once that the recording has ended before the session.
func (m *Model) hearRecorder() {
	if m.opts.Recorder == nil || m.recorderOver {
		return
	}
	if why := m.opts.Recorder.Stopped(); why != "" {
		m.recorderOver = true
		m.say(themes.Warn, "the recording has stopped: "+why)
	}
}
