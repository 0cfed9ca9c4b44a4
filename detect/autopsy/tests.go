package autopsy

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	testsLeast   = 3       // groups that are compared
	slowTest     = 0.75    // of the usual bandwidth, and less is slow
	largeMessage = 8 << 20 // bytes from which on bandwidth counts, not latency
	slowestFast  = 2.0     // GB/s between GPUs of two nodes that no fast network is slower than
	sureOfTests  = 0.7
	sureOfSocket = 0.6
	sureOfWait   = 0.6
	waitShare    = 1.0 // of the time in collectives itself
)

// judgeTests compares tests of groups of nodes: who is in the slow ones and in no fast one is to blame.
func judgeTests(f *Facts) opinion {
	var large []Bandwidth
	for _, t := range f.Tests {
		if t.Bytes >= largeMessage && len(t.Hosts) > 0 {
			large = append(large, t)
		}
	}
	if len(large) < testsLeast {
		return judgeSocket(large)
	}
	slices.SortStableFunc(large, func(a, b Bandwidth) int {
		return cmp.Compare(a.GBs, b.GBs)
	})
	usual := large[len(large)*3/4].GBs // the upper quartile: half of the pairs may have the slow node
	slow := map[string]int{}
	fast := map[string]bool{}
	var below []Bandwidth
	for _, t := range large {
		if t.GBs < slowTest*usual {
			below = append(below, t)
		}
		for _, h := range t.Hosts {
			if t.GBs < slowTest*usual {
				slow[h]++
			} else {
				fast[h] = true
			}
		}
	}
	if len(below) == 0 {
		return opinion{judged: true}
	}
	o := opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfTests,
		judged:     true,
		slowdown:   usual / below[0].GBs,
	}
	for _, h := range blamed(below, slow, fast) {
		o.who = append(o.who, Who{Rank: -1, Host: h})
	}
	for _, t := range below[:min(len(below), fewMost)] {
		text := fmt.Sprintf("%s of %s is %.4g GB/s, usual is %.4g",
			t.Metric, few(t.Hosts), t.GBs, usual)
		o.findings = append(o.findings, finding("test", Nobody, zero, t.Source, text))
	}
	o.summary = fmt.Sprintf("%d of %d tests are slow", len(below), len(large))
	if len(o.who) > 0 {
		o.summary = fmt.Sprintf("%s is in the slow tests and in no fast one", names(o.who))
	}
	o.next = []string{"test the nodes of the slow groups with others, one at a time"}
	return o
}

// blamed are the nodes that explain the slow tests, the fewest that do: the one in most of them first.
func blamed(below []Bandwidth, slow map[string]int, fast map[string]bool) []string {
	var out []string
	for _, t := range below {
		var suspects []string
		for _, h := range t.Hosts {
			if !fast[h] {
				suspects = append(suspects, h)
			}
		}
		if slices.ContainsFunc(suspects, func(h string) bool {
			return slices.Contains(out, h)
		}) {
			continue
		}
		slices.SortStableFunc(suspects, func(a, b string) int {
			return -cmp.Compare(slow[a], slow[b])
		})
		switch {
		case len(suspects) == 0, len(suspects) > 1 && slow[suspects[0]] == slow[suspects[1]]:
			return nil // it can't be determined which of them, or the link between two good ones is slow
		}
		out = append(out, suspects[0])
	}
	return out
}

// judgeSocket finds a test between nodes that ran at the speed of Ethernet's sockets.
func judgeSocket(tests []Bandwidth) opinion {
	for _, t := range tests {
		if len(t.Hosts) < 2 || t.GBs >= slowestFast {
			continue
		}
		text := fmt.Sprintf("%s of %s is %.3g GB/s: no more than a plain Ethernet port carries",
			t.Metric, few(t.Hosts), t.GBs)
		return opinion{
			kind:       KindSlow,
			rank:       orderSlow,
			confidence: sureOfSocket,
			judged:     true,
			summary:    text,
			findings:   []Finding{finding("test", Nobody, zero, t.Source, text)},
			next: []string{
				"read which network NCCL chose (NCCL_DEBUG=INFO: NET/IB or NET/Socket); set NCCL_SOCKET_IFNAME or NCCL_IB_HCA where it is the wrong one",
			},
		}
	}
	return opinion{judged: len(tests) > 0}
}

// judgeWaits finds collectives whose ranks wait for each other longer than they communicate.
func judgeWaits(f *Facts) opinion {
	in, waited := 0.0, 0.0
	var worst Wait
	for _, w := range f.Waits {
		in += w.InMs
		waited += w.WaitMs
		if w.WaitMs > worst.WaitMs {
			worst = w
		}
	}
	if waited <= waitShare*in {
		return opinion{judged: len(f.Waits) > 0}
	}
	text := fmt.Sprintf(
		"ranks wait for the last to arrive %.2g times as long as they communicate, most in %s of %s",
		waited/in, worst.Op, worst.Size,
	)
	return opinion{
		kind:       KindSlow,
		rank:       orderSlow,
		confidence: sureOfWait,
		judged:     true,
		summary:    text,
		costS:      waited / 1e3,
		findings:   []Finding{finding("waiting", Nobody, zero, worst.Source, text)},
		next: []string{
			"compare the ranks' own times (forward, backward, data): this table does not say who is late",
		},
	}
}

// judgeIdle finds the GPU that idles while the others of the job are busy: who waits in a collective is busy.
func judgeIdle(f *Facts) opinion {
	newest := map[string]Sample{}
	for _, s := range f.Samples {
		if s.Direction == IdleStands {
			newest[s.Key] = s
		}
	}
	if len(newest) < peersLeast {
		return opinion{judged: len(newest) > 0}
	}
	var idle []Sample
	for _, s := range newest {
		switch {
		case s.Value < idleBelow:
			idle = append(idle, s)
		case s.Value < busyFrom:
			return opinion{judged: true}
		}
	}
	if len(idle) == 0 || 4*len(idle) > len(newest) {
		return opinion{judged: true}
	}
	slices.SortFunc(idle, func(a, b Sample) int {
		return cmp.Compare(a.Key, b.Key)
	})
	o := opinion{
		kind:       KindHang,
		rank:       orderHang,
		confidence: sureOfIdle,
		judged:     true,
	}
	for _, s := range idle {
		o.who = append(o.who, s.Who)
		o.findings = append(o.findings, finding("idle", s.Who, zero, s.Source,
			"it holds memory of a job and idles while the others are busy"))
	}
	o.summary = names(o.who) +
		" idles while the others are busy: in a hang its process is the one that did not come"
	o.next = []string{
		"take the stack of the process on " + names(o.who) +
			" (py-spy dump), and look once more whether it still idles",
	}
	return o
}

const (
	idleBelow  = 6  // percent plus one
	busyFrom   = 81 // the same
	sureOfIdle = 0.5
)
