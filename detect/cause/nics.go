package cause

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// NIC is a network port since a moment, against the time before; rates are per second.
type NIC struct {
	Known        bool    // two readings that span a rate exist
	Marks        float64 // congestion notifications sent and handled, and marked packets
	MarksBefore  float64
	Resent       float64 // retransmits and packets out of sequence
	ResentBefore float64
	Wait         float64 // ticks with data to send and no credit (port_xmit_wait)
	WaitBefore   float64
	RateMbps     uint64 // link rate at the newest reading, 0 = unknown
	RateBefore   uint64 // the greatest before the moment, 0 = unknown
	Down         bool   // was active, and was not in the newest two readings
	Downed       uint64 // how often the link went down since
	Emulated     bool
}

func summarizeNIC(before, since []stamped[falcon.NICReading]) NIC {
	if len(since) == 0 {
		return NIC{}
	}
	lacks := func(r falcon.NICReading) string { return r.Err }
	first, last, ok := endReadings(before, since, hasCounters, lacks)
	if !ok {
		return NIC{}
	}
	n := NIC{
		RateMbps: last.RateMbps,
		Down:     portLost(before, since),
		Emulated: last.Emulated,
	}
	for _, s := range before {
		n.RateBefore = max(n.RateBefore, s.of.RateMbps)
	}
	n.Downed = counterGrowth(first.LinkDowned, last.LinkDowned)
	n.Marks, n.Resent, n.Wait, n.Known = growthRates(first, last)
	if from, to, ok := endReadings(nil, before, hasCounters, lacks); ok {
		n.MarksBefore, n.ResentBefore, n.WaitBefore, _ = growthRates(from, to)
	}
	return n
}

// hasCounters reports whether a look brought anything: Err may name counters that the
// driver does not offer beside those that it does.
func hasCounters(r falcon.NICReading) bool {
	some := r.XmitWait | r.CNPSent | r.CNPHandled | r.ECNMarked | r.Retransmits | r.OutOfSequence |
		r.LinkDowned | r.SymbolErrors | r.XmitBytes | r.RcvBytes | r.RateMbps
	return r.Err == "" || r.Active || some > 0
}

// portLost reports whether a port that was active is down in two looks running. A port
// without a cable was never active.
func portLost(before, since []stamped[falcon.NICReading]) bool {
	down, active := 0, false
	for _, s := range slices.Concat(before, since) {
		switch {
		case !hasCounters(s.of):
		case s.of.Active:
			down, active = 0, true
		default:
			down++
		}
	}
	return active && down > 1
}

// growthRates are the growths between two readings per second; ok is false for no time.
func growthRates(first, last falcon.NICReading) (marks, resent, wait float64, ok bool) {
	seconds := float64(last.AtNs-first.AtNs) / 1e9
	if seconds <= 0 {
		return 0, 0, 0, false
	}
	marked := counterGrowth(first.CNPSent, last.CNPSent) +
		counterGrowth(first.CNPHandled, last.CNPHandled) +
		counterGrowth(first.ECNMarked, last.ECNMarked)
	again := counterGrowth(first.Retransmits, last.Retransmits) +
		counterGrowth(first.OutOfSequence, last.OutOfSequence)
	return float64(
			marked,
		) / seconds,
		float64(again) / seconds,
		float64(counterGrowth(first.XmitWait, last.XmitWait)) / seconds,
		true
}

// congestion says what of a port's counters grows much faster than before and
// than at the other ports; empty when nothing does.
func (c *Case) congestion(id falcon.NIC) string {
	n := c.Counters.NICs[id]
	if !n.Known {
		return ""
	}
	var said []string
	far := func(what string, now, before, floor float64, of func(NIC) float64) {
		usual := max(before, c.peerNIC(id, of))
		if now > nicTimes*usual && now > floor {
			said = append(said, fmt.Sprintf("%s %.0f/s instead of %.1f/s", what, now, usual))
		}
	}
	far("congestion marks", n.Marks, n.MarksBefore, marksLeast, func(n NIC) float64 { return n.Marks })
	far("retransmits", n.Resent, n.ResentBefore, resentLeast, func(n NIC) float64 { return n.Resent })
	far("transmit-wait ticks", n.Wait, n.WaitBefore, waitLeast, func(n NIC) float64 { return n.Wait })
	if len(said) > 0 && n.Emulated {
		said = append(said, "emulated")
	}
	return strings.Join(said, ", ")
}

// Busy reports whether a port of a node sees congestion since a moment: a counter
// grows far faster than at the ports of nodes that are not set apart. Known is
// false where no port of the node was read twice since.
func (h *History) Busy(n falcon.Node, apart []falcon.Node, since time.Time) (busy, known bool) {
	var here, there []NIC
	var room []stamped[falcon.NICReading]
	for id, t := range h.nics {
		nic := summarizeNIC(splitAt(readAll(h, t, nicOf, &room), since))
		switch {
		case !nic.Known:
		case id.Node() == n:
			here = append(here, nic)
		case !slices.Contains(apart, id.Node()):
			there = append(there, nic)
		}
	}
	far := func(floor float64, of func(NIC) float64) bool {
		all := make([]float64, len(there))
		for i, q := range there {
			all[i] = of(q)
		}
		usual := falcon.Median(all)
		return slices.ContainsFunc(here, func(q NIC) bool {
			return of(q) > nicTimes*usual && of(q) > floor
		})
	}
	busy = far(marksLeast, func(q NIC) float64 { return q.Marks }) ||
		far(resentLeast, func(q NIC) float64 { return q.Resent }) ||
		far(waitLeast, func(q NIC) float64 { return q.Wait })
	return busy, len(here) > 0
}

// degraded says what is wrong with a port's link as such; empty when nothing.
// Its rate is compared with its own before, else with that of the port of the
// same number on the other nodes: a node has ports of several kinds.
func (c *Case) degraded(id falcon.NIC) string {
	n := c.Counters.NICs[id]
	usual := n.RateBefore
	of := "before"
	if usual == 0 {
		usual = c.railRate(id)
		of = "at its peers"
	}
	switch {
	case n.Down:
		return "its link is down"
	case n.Downed > 0:
		return fmt.Sprintf("its link went down %d times since the onset", n.Downed)
	case n.RateMbps > 0 && float64(n.RateMbps) < rateGap*float64(usual):
		return fmt.Sprintf("its link runs at %.0f Gb/s, %s at %.0f Gb/s",
			float64(n.RateMbps)/1e3, of, float64(usual)/1e3)
	}
	return ""
}

// railRate is the median rate of the ports with the same number on the other
// nodes, 0 where fewer than two are known.
func (c *Case) railRate(id falcon.NIC) uint64 {
	_, number, _ := strings.Cut(string(id), ".nic")
	var out []float64
	for q, n := range c.Counters.NICs {
		_, other, _ := strings.Cut(string(q), ".nic")
		if q != id && other == number && n.RateMbps > 0 {
			out = append(out, float64(n.RateMbps))
		}
	}
	if len(out) < 2 {
		return 0
	}
	return uint64(falcon.Median(out))
}

func (c *Case) peerNIC(id falcon.NIC, value func(NIC) float64) float64 {
	var out []float64
	for q, n := range c.Counters.NICs {
		if q != id && (n.Known || n.RateMbps > 0) {
			out = append(out, value(n))
		}
	}
	return falcon.Median(out)
}

// nodePorts are the ports of a node, sorted.
func (c *Case) nodePorts(n falcon.Node) []falcon.NIC {
	var out []falcon.NIC
	for id := range c.Counters.NICs {
		if id.Node() == n {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// hotPort is the first congested port of a node, with what its counters show.
func (c *Case) hotPort(n falcon.Node) (falcon.NIC, string) {
	for _, id := range c.nodePorts(n) {
		if said := c.congestion(id); said != "" {
			return id, said
		}
	}
	return "", ""
}

// congestedLinks are the links whose both ends have a congested port.
func (c *Case) congestedLinks(links []falcon.Link) []falcon.Link {
	var out []falcon.Link
	for _, l := range links {
		a, _ := c.hotPort(l.A)
		b, _ := c.hotPort(l.B)
		if a != "" && b != "" {
			out = append(out, l)
		}
	}
	return out
}

// addCongestion adds the counters of both ends of each link as one proof.
func (c *Case) addCongestion(o *opinion, links []falcon.Link) {
	for _, l := range links {
		for _, n := range []falcon.Node{l.A, l.B} {
			id, said := c.hotPort(n)
			if id != "" {
				o.nics = append(o.nics, id)
			}
			o.evidence = append(o.evidence, falcon.Evidence{
				Kind: falcon.EvidenceCounter,
				Text: fmt.Sprintf("%s, an end of %s: %s", id, l, said),
			})
		}
	}
	if len(links) > 0 {
		o.proofs = append(o.proofs, weightNIC)
	}
}

// addPorts adds ports of the slow groups' nodes whose link itself is
// degraded, as a proof that does not show which of their links it is.
func (c *Case) addPorts(o *opinion) {
	var seen []falcon.Node
	for _, r := range o.ranks {
		n := c.deviceOf(r).Node()
		if n == "" || slices.Contains(seen, n) {
			continue
		}
		seen = append(seen, n)
		for _, id := range c.nodePorts(n) {
			if said := c.degraded(id); said != "" {
				o.nics = append(o.nics, id)
				o.addEvidence(falcon.EvidenceCounter, weightPort, "%s: %s", id, said)
			}
		}
	}
}
