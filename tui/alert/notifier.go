package alert

import (
	"time"

	"github.com/failslow/falcon/tui/feed"
)

// Notifier owns how one console may make itself heard: by which sequences of its
// terminal, whether it has the focus, and what the operator has switched
// off.
type Notifier struct {
	core    Core
	channel Channel
	away    bool // the terminal has reported that it lost the focus
	muted   bool
	silent  bool // no desktop notifications
	price   float64
	job     string // named in titles, where a console shows several
}

// NewNotifier makes a console's notifier; muted: no bell, silent: no desktop notifications,
// price: GPU-hours that a minor slowdown must have cost to be reported.
func NewNotifier(muted, silent bool, price float64) Notifier {
	return Notifier{muted: muted, silent: silent, price: price}
}

// Meet chooses the sequences by the environment, and returns what to ask the terminal, or "".
func (n *Notifier) Meet(getenv func(string) string) (probe string) {
	if n.silent {
		return ""
	}
	n.channel = Choose(getenv)
	if !Probing(getenv) {
		return ""
	}
	return Probe
}

// Probed takes the terminal's answer to the probe.
func (n *Notifier) Probed(seq string) {
	if Answered(seq) {
		n.channel = OSC99
	}
}

// Focus notes whether the terminal has the focus.
func (n *Notifier) Focus(focused bool) {
	n.away = !focused
}

// Mute switches the bell off, or on again, and returns whether it is off.
func (n *Notifier) Mute() bool {
	n.muted = !n.muted
	return n.muted
}

// Muted reports whether the bell is off.
func (n *Notifier) Muted() bool { return n.muted }

// Name has titles name the job.
func (n *Notifier) Name(job string) {
	n.job = job
}

// StepJobs returns what to write to the terminal now for several jobs, or "".
func (n *Notifier) StepJobs(now time.Time, jobs []OfJob) string {
	return Encode(n.core.StepJobs(now, jobs, n.input(nil)), n.channel)
}

func (n *Notifier) input(s *feed.State) Input {
	return Input{
		State:   s,
		Job:     n.job,
		Price:   n.price,
		Focused: !n.away,
		Muted:   n.muted,
		Silent:  n.silent || n.channel == None,
	}
}

// Step returns what to write to the terminal now, or "".
func (n *Notifier) Step(now time.Time, s *feed.State) string {
	return Encode(n.core.Step(now, n.input(s)), n.channel)
}
