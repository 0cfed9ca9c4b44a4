package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func (a *fakeAgent) notes(list ...*falconv1.KernelNote) {
	a.send(&falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Kernel{Kernel: &falconv1.KernelNotes{Notes: list}},
	})
}

func (b *bench) kernelLines() []string {
	var out []string
	b.inLoop(func() {
		for _, e := range b.engine.state.events {
			if e.GetKind() == kindKernel {
				out = append(out, e.GetAbout()+": "+e.GetText())
			}
		}
	})
	return out
}

// What a node's kernel says is an event line of the node's own part, in the picture of the node
// and in the report of an incident there; it decides nothing.
func TestKernelNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		a := b.proposed()
		culprit := b.incidents().GetIncidents()[0].GetVerdict().GetDevices()[0]
		var here, other *fakeAgent
		for _, x := range b.job.agents {
			if strings.HasPrefix(culprit, x.node+".") {
				here = x
			} else {
				other = x
			}
		}
		var pid int32
		b.inLoop(func() {
			pid = b.engine.job.ranks[falcon.Rank(here.ranks[0])].state.GetPid()
		})
		now := b.engine.cfg.Now().UnixNano()
		here.notes(&falconv1.KernelNote{
			AtUnixNs: now,
			Kind:     "xid",
			Code:     79,
			Device:   culprit,
			Pid:      pid,
			Fatal:    true,
			Text:     "Xid 79: the GPU has fallen\x1b[2J off the bus",
			Rank:     77,
		})
		b.turn()
		// of a part that is not its own
		other.notes(&falconv1.KernelNote{
			AtUnixNs: now,
			Kind:     "oom",
			Device:   culprit,
			Pid:      pid,
			Text:     "a process was killed",
		})
		b.turn()
		lines := b.kernelLines()
		want := fmt.Sprintf("%s: the kernel of %s: Xid 79: the GPU has fallen[2J off the bus (%s, rank %d)",
			culprit, here.node, culprit, here.ranks[0])
		if len(lines) != 2 ||
			lines[0] != want ||
			!strings.HasPrefix(lines[1], other.node+": the kernel of "+other.node) {
			t.Errorf("got %q, want %q", lines, want)
		}
		s, err := b.engine.Latest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range s.For(dana, nil).GetNodes() {
			if n.GetNode() == here.node &&
				(len(n.GetKernel()) != 1 ||
					n.GetKernel()[0].GetRank() != here.ranks[0] ||
					n.GetKernel()[0].GetCode() != 79) {
				t.Errorf("%v", n)
			}
		}
		r, err := b.engine.Incidents(context.Background(), a.GetIncident())
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, e := range r.GetEvents() {
			if e.GetKind() == kindKernel {
				found++
			}
		}
		if found != 1 {
			t.Errorf("the incident's report has %d lines of kernels, want that of its own node", found)
		}
		if got := b.action().GetState(); got != a.GetState() {
			t.Errorf("the proposal is %s", got)
		}
		if len(b.recoveries()) > 0 {
			t.Errorf("a line of the kernel began a recovery: %v", b.recoveries())
		}
	})
}

// A node whose kernel writes without end costs a bounded number of lines, and others none.
func TestKernelNotesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start()
		b.turn()
		loud, calm := b.job.agents[0], b.job.agents[1]
		for i := range int32(100) {
			var list []*falconv1.KernelNote
			for j := range int32(40) {
				list = append(list, &falconv1.KernelNote{
					Kind:     "xid",
					Code:     100*i + j,
					Text:     strings.Repeat("x", 4000),
					Line:     strings.Repeat("y", 9000),
					AtUnixNs: 1 << 62,
				})
			}
			loud.notes(list...)
		}
		calm.notes(&falconv1.KernelNote{
			Kind:     "oom",
			Text:     "a process was killed",
			AtUnixNs: b.engine.cfg.Now().UnixNano(),
		})
		b.turn()
		n, own := 0, false
		for _, l := range b.kernelLines() {
			n++
			own = own || strings.Contains(l, "the kernel of "+calm.node)
		}
		if n > kernelNotesMost+2 || !own {
			t.Errorf("%d lines, that of the calm node among them: %t", n, own)
		}
		b.inLoop(func() {
			for _, v := range b.engine.kernel.of[b.engine.job.ranks[0].node] {
				if len(v.GetText()) > textBytesMax ||
					len(v.GetLine()) > kernelLineMost ||
					time.Until(time.Unix(0, v.GetAtUnixNs())) > time.Hour {
					t.Errorf("kept %d and %d bytes of %s",
						len(v.GetText()), len(v.GetLine()), time.Unix(0, v.GetAtUnixNs()))
				}
			}
			n := len(b.engine.kernel.of[b.engine.job.ranks[0].node])
			if n > kernelNotesKept {
				t.Errorf("%d notes are kept", n)
			}
		})
	})
}
