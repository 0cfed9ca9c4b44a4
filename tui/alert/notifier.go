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
func (n *Notifier) Focus(focused bool) { n.away = !focused }

// Mute switches the bell off, or on again, and returns whether it is off.
func (n *Notifier) Mute() bool {
	n.muted = !n.muted
	return n.muted
}

// Step returns what to write to the terminal now, or "".
func (n *Notifier) Step(now time.Time, s *feed.State) string {
	out := n.core.Step(now, Input{
		State: s, Price: n.price, Focused: !n.away, Muted: n.muted, Silent: n.silent || n.channel == None,
	})
	return Encode(out, n.channel)
}
