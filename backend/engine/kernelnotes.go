package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
)

// Bounds of what the nodes' kernels say.
const (
	kernelNotesMost  = 16 // of one node in a budget's period
	kernelNotesKept  = 4  // of one node, the newest
	kernelNotesLife  = 24 * time.Hour
	kindKernel       = "kernel"
	kernelLineMost   = 1024
	kernelNodesMost  = fleet.NodesMax
	kernelCodeMost   = 1 << 20
	kernelFutureMost = time.Hour // an agent's clock that is further ahead is not believed
)

// kernelNotes keeps what the nodes' kernels have said lately, for people: nothing is decided on
// it, and nothing fenced. Each is an event line as well, which lasts.
type kernelNotes struct {
	*shared
	of   map[falcon.Node][]*falconv1.KernelNote // oldest first
	pace map[falcon.Node]*budget
}

func newKernelNotes(s *shared) *kernelNotes {
	return &kernelNotes{
		shared: s,
		of:     map[falcon.Node][]*falconv1.KernelNote{},
		pace:   map[falcon.Node]*budget{},
	}
}

// take takes an agent's notes.
func (k *kernelNotes) take(n *fleet.Node, in *falconv1.KernelNotes, now time.Time) {
	pace := k.pace[n.Name]
	if pace == nil {
		pace = &budget{burst: kernelNotesMost}
		k.pace[n.Name] = pace // nodes are known by their certificates
	}
	for _, note := range in.GetNotes() {
		if ok, _ := pace.admit(now); !ok {
			return
		}
		v := k.believed(n.Name, note, now)
		about := string(n.Name)
		if v.Device != "" {
			about = v.Device
		}
		k.oplog.logf(
			kindKernel,
			kernelSeverity(v),
			about,
			"%s",
			noteText(n.Name, v),
		)
		if len(k.of) >= kernelNodesMost && k.of[n.Name] == nil {
			continue
		}
		list := append(k.of[n.Name], v)
		k.of[n.Name] = slices.Clone(list[max(0, len(list)-kernelNotesKept):])
	}
}

// believed is a note with what a node may say of itself alone, and the rank whose process it names.
func (k *kernelNotes) believed(
	node falcon.Node,
	in *falconv1.KernelNote,
	now time.Time,
) *falconv1.KernelNote {
	out := &falconv1.KernelNote{
		AtUnixNs: in.GetAtUnixNs(),
		Kind:     clean(in.GetKind()),
		Code:     min(max(in.GetCode(), 0), kernelCodeMost),
		Pid:      max(in.GetPid(), 0),
		Fatal:    in.GetFatal(),
		Text:     clean(in.GetText()),
		Advice:   clean(in.GetAdvice()),
		Line:     cleanWithin(in.GetLine(), kernelLineMost),
		Rank:     -1,
	}
	d, err := falcon.ParseDevice(in.GetDevice())
	if err == nil && d.Node() == node {
		out.Device = string(d)
	}
	age := now.Sub(time.Unix(0, out.AtUnixNs))
	if age < -kernelFutureMost || age > kernelNotesLife {
		out.AtUnixNs = now.UnixNano()
	}
	for r, p := range k.job.ranks {
		if out.Pid > 0 && p.node == node && p.state.GetPid() == out.Pid {
			out.Rank = int32(r)
		}
	}
	return out
}

// kernelSeverity is a warning for what ends a process or a part, else a note.
func kernelSeverity(v *falconv1.KernelNote) int32 {
	if v.GetFatal() || v.GetRank() >= 0 {
		return 2
	}
	return 1
}

func noteText(node falcon.Node, v *falconv1.KernelNote) string {
	var of []string
	if v.Device != "" {
		of = append(of, v.Device)
	}
	if v.Rank >= 0 {
		of = append(of, fmt.Sprintf("rank %d", v.Rank))
	}
	if len(of) == 0 {
		of = append(of, string(node))
	}
	return fmt.Sprintf("the kernel of %s: %s (%s)", node, v.Text, strings.Join(of, ", "))
}

// views are the newest notes of a node, oldest first.
func (k *kernelNotes) views(node falcon.Node, now time.Time) []*falconv1.KernelNote {
	return slices.DeleteFunc(slices.Clone(k.of[node]), func(v *falconv1.KernelNote) bool {
		return now.Sub(time.Unix(0, v.GetAtUnixNs())) > kernelNotesLife
	})
}

// isKernelLineOf reports whether a line is what the kernel of a node that an incident names has
// said while it lasted, or shortly before or after.
func (c *clusterView) isKernelLineOf(line *falconv1.EventLine, v falcon.Incident) bool {
	if line.GetKind() != kindKernel || line.GetIteration() < v.OnsetIteration-chartMargin ||
		v.RelievedIteration != falcon.NoIteration && line.GetIteration() > v.RelievedIteration+chartMargin {
		return false
	}
	node := falcon.Node(line.GetAbout())
	if d, err := falcon.ParseDevice(line.GetAbout()); err == nil {
		node = d.Node()
	}
	return slices.Contains(c.nodesNamed(v.Verdict), node)
}

// nodesNamed are the nodes of what a verdict names.
func (c *clusterView) nodesNamed(v falcon.Verdict) []falcon.Node {
	var out []falcon.Node
	for _, d := range v.Devices {
		out = append(out, d.Node())
	}
	for _, r := range v.Ranks {
		if p := c.job.ranks[r]; p != nil {
			out = append(out, p.node)
		}
	}
	return out
}
