package liveness

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// How is how an agent's stream came to its end.
type How uint8

// Ends of streams. None of them is a sign against the node by itself.
const (
	TimedOut How = iota // nothing was heard on it for long
	Reset               // the other side broke it
	Goodbye             // the agent reported that it stops in order
	Closed              // the engine ended it itself
)

// ReportLife is how long a device's fatal report is a sign.
const ReportLife = 10 * time.Minute

// Limits are the times after which silence means something.
type Limits struct {
	Beat    time.Duration // between two signs of life
	Grace   time.Duration // for a node to be heard at all
	Leave   time.Duration // for an agent that said goodbye to come back
	Suspect int           // missed beats
}

// Hosts are the nodes that were heard of.
type Hosts struct {
	limits Limits
	hosts  map[falcon.Node]*Host
	// when those that came back from silence since the last GraceReturned had last been heard
	back []time.Time
}

// NewHosts knows of no node.
func NewHosts(limits Limits) *Hosts {
	return &Hosts{limits: limits, hosts: map[falcon.Node]*Host{}}
}

// Get finds a node; one that is new has the grace time to be heard.
func (t *Hosts) Get(n falcon.Node, now time.Time) *Host {
	h := t.hosts[n]
	if h == nil {
		h = &Host{limits: &t.limits, heard: now.Add(t.limits.Grace)}
		t.hosts[n] = h
	}
	return h
}

// AnyMissing reports whether one of the nodes was never heard, or is not heard now.
func (t *Hosts) AnyMissing(nodes []falcon.Node, now time.Time) bool {
	return slices.ContainsFunc(nodes, func(n falcon.Node) bool {
		h := t.Get(n, now)
		return !h.met || h.Unheard(now)
	})
}

// NoneHeard reports whether several nodes are known and none is heard.
func (t *Hosts) NoneHeard(now time.Time) bool {
	for _, h := range t.hosts {
		if h.met && !h.Unheard(now) {
			return false
		}
	}
	return len(t.hosts) > 1
}

// Skip takes a pause of the engine itself out of every node's silence.
func (t *Hosts) Skip(gap time.Duration, now time.Time) {
	for _, h := range t.hosts {
		h.heard = earlier(h.heard.Add(gap), now) // what has come since is of now
	}
}

// Restart has every node's silence begin now.
func (t *Hosts) Restart(now time.Time) {
	for _, h := range t.hosts {
		if h.heard.Before(now) {
			h.heard, h.suspected = now, false
		}
	}
}

// Hear takes a sign of life of a node; it reports whether the node was suspected, and had no connection.
func (t *Hosts) Hear(n falcon.Node, now time.Time) (suspected, gone bool) {
	h := t.Get(n, now)
	suspected, gone = h.suspected, h.gone
	if suspected {
		t.back = append(t.back, h.spoke)
	}
	if gone || !h.met {
		h.returned = now
	}
	h.heard = now
	h.spoke = now
	h.met = true
	h.gone = false
	h.suspected = false
	return suspected, gone
}

// GraceReturned gives the whole time again to nodes that fell silent together with others, within a beat,
// that are heard again: what silenced those is on the way, and may delay these for longer. It
// returns them in order. As a node is compared by when it was truly last heard, others that
// come and go later do not excuse it once more.
func (t *Hosts) GraceReturned(now time.Time) []falcon.Node {
	if len(t.back) == 0 {
		return nil
	}
	slices.SortFunc(t.back, time.Time.Compare)
	var excused []falcon.Node
	for n, h := range t.hosts {
		i, _ := slices.BinarySearchFunc(
			t.back,
			h.spoke.Add(-t.limits.Beat),
			time.Time.Compare,
		)
		if h.met &&
			h.Unheard(now) &&
			i < len(t.back) &&
			t.back[i].Sub(h.spoke) <= t.limits.Beat {
			h.excused = now
			excused = append(excused, n)
		}
	}
	t.back = t.back[:0]
	slices.Sort(excused)
	return excused
}

// Host is one node.
type Host struct {
	limits    *Limits
	heard     time.Time // or, of one never heard, the end of the time that it has for that
	spoke     time.Time // truly last heard, whatever has restarted its silence since
	excused   time.Time // newest, zero = never
	returned  time.Time // when it was first heard after its stream had ended, or at all
	met       bool      // heard since the machine began
	suspected bool
	gone      bool      // its stream has ended and it has opened no other
	how       How       // it ended
	goneAt    time.Time // when
	fatal     Report    // newest
	fatalAt   time.Time
}

// Disconnect takes the end of the node's stream.
func (h *Host) Disconnect(now time.Time, how How) {
	h.gone = true
	h.how = how
	h.goneAt = now
	h.heard = earlier(h.heard, now)
}

// Report takes a device's fatal report.
func (h *Host) Report(r Report, at time.Time) {
	h.fatal, h.fatalAt = r, at
}

// Met reports whether the node was ever heard.
func (h *Host) Met() bool { return h.met }

// Connected reports whether the node's stream has not ended, or there was none yet.
func (h *Host) Connected() bool { return !h.gone }

// WasReset reports whether the node's connection was reset and is not back.
func (h *Host) WasReset() bool { return h.gone && h.how == Reset }

// AwaySince reports whether the node's stream had ended, or the node was not heard at all, at some
// time since t.
func (h *Host) AwaySince(t time.Time) bool {
	return h.gone || !h.met || h.returned.After(t)
}

// LastHeard is when the node was last heard; if never, when its time for that ends.
func (h *Host) LastHeard() time.Time { return h.heard }

// Suspected reports whether the node was named as suspected and not heard since.
func (h *Host) Suspected() bool { return h.suspected }

// MissedBeats is how many signs of life are missing.
func (h *Host) MissedBeats(now time.Time) int {
	return int(now.Sub(h.heard) / h.limits.Beat)
}

// HeardWithin reports whether the node was truly heard so lately, whatever has restarted its silence.
func (h *Host) HeardWithin(now time.Time, limit time.Duration) bool {
	return h.met && now.Sub(h.spoke) < limit
}

// SilentFor reports whether so many signs of life are missing, all of them since it was excused.
func (h *Host) SilentFor(now time.Time, beats int) bool {
	return h.MissedBeats(now) >= beats &&
		now.Sub(h.excused) >= time.Duration(beats)*h.limits.Beat
}

// Unheard reports whether nothing is known of the node now.
func (h *Host) Unheard(now time.Time) bool {
	return h.gone || h.MissedBeats(now) >= h.limits.Suspect
}

// Leaving reports whether the node's agent said goodbye and still has time to come back.
func (h *Host) Leaving(now time.Time) bool {
	return h.gone && h.how == Goodbye && now.Sub(h.goneAt) < h.limits.Leave
}

// BecomesSuspect reports whether the node is to be named as suspected, once.
func (h *Host) BecomesSuspect(now time.Time) bool {
	if h.suspected || h.MissedBeats(now) < h.limits.Suspect || h.Leaving(now) {
		return false
	}
	h.suspected = true
	return true
}

// Fatal returns the newest fatal report of one of the node's devices and when it came,
// false where none is recent enough to be a sign.
func (h *Host) Fatal(now time.Time) (Report, time.Time, bool) {
	return h.fatal, h.fatalAt, !h.fatalAt.IsZero() && now.Sub(h.fatalAt) < ReportLife
}

// Report is a device's own report.
type Report struct {
	Device falcon.Device // "n1.g0", or a NIC "n1.nic0"
	Code   int           // XID, 0 = none
	Text   string
}

// Node is the machine of the device or NIC.
func (r Report) Node() falcon.Node {
	if r.Device.Index() >= 0 {
		return r.Device.Node()
	}
	return falcon.NIC(r.Device).Node()
}

// Concerns reports whether the report concerns the process on a device: it is of that
// device, or of a port that all of the node share.
func (r Report) Concerns(on falcon.Device) bool {
	return r.Device == on || r.Device.Index() < 0
}

func (r Report) String() string {
	if r.Code != 0 {
		return fmt.Sprintf("%s reports XID %d: %s", r.Device, r.Code, r.Text)
	}
	return fmt.Sprintf("%s reports: %s", r.Device, r.Text)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
