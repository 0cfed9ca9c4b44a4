package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
)

// EvidenceKernel is the kind of what a kernel has said. No verdict holds it.
const EvidenceKernel = "kernel"

// clearest orders evidence for a reader who may see a part of it: the kernel or a counter says
// what is wrong with a device, a test measured it, timing names it.
var clearest = []falcon.EvidenceKind{
	EvidenceKernel,
	falcon.EvidenceCounter,
	falcon.EvidenceTest,
	falcon.EvidenceTiming,
}

// ClearestFirst is the evidence of a verdict, the clearest first, in a new list.
func ClearestFirst(list []*falconv1.Evidence) []*falconv1.Evidence {
	said := map[string]bool{}
	list = slices.DeleteFunc(slices.Clone(list), func(e *falconv1.Evidence) bool {
		again := said[e.GetKind()+e.GetText()]
		said[e.GetKind()+e.GetText()] = true
		return again
	})
	return slices.SortedStableFunc(slices.Values(list), func(a, b *falconv1.Evidence) int {
		return clarity(a) - clarity(b)
	})
}

func clarity(e *falconv1.Evidence) int {
	if i := slices.Index(clearest, falcon.EvidenceKind(e.GetKind())); i >= 0 {
		return i
	}
	return len(clearest)
}

// kernelBefore is how long before an incident a kernel's line may belong to it.
const kernelBefore = 10 * time.Minute

// KernelEvidence is what the kernels of the nodes that a verdict names have said since shortly
// before the incident: for a person, the verdict is not made of it.
func KernelEvidence(s *State, i *falconv1.Incident) []*falconv1.Evidence {
	v := i.GetVerdict()
	var out []*falconv1.Evidence
	for _, n := range s.Snap().GetNodes() {
		if !namesNode(s, v, n.GetNode()) {
			continue
		}
		for _, k := range n.GetKernel() {
			at := time.Unix(0, k.GetAtUnixNs())
			if i.GetOnsetUnixNs() > 0 && at.Before(time.Unix(0, i.GetOnsetUnixNs()).Add(-kernelBefore)) ||
				i.GetEndUnixNs() > 0 && at.After(time.Unix(0, i.GetEndUnixNs())) {
				continue
			}
			out = append(out, &falconv1.Evidence{
				Kind: EvidenceKernel,
				Text: kernelText(s, n.GetNode(), k),
			})
		}
	}
	return out
}

func namesNode(s *State, v *falconv1.Verdict, node string) bool {
	return slices.ContainsFunc(v.GetDevices(), func(d string) bool {
		return roster.NodeOf(d) == node
	}) ||
		slices.ContainsFunc(v.GetRanks(), func(r int32) bool {
			return s.NodeOf(r) == node
		})
}

// kernelText is a note in one line: of what, when, what it means and what to do.
func kernelText(s *State, node string, k *falconv1.KernelNote) string {
	of := []string{}
	if k.GetDevice() != "" {
		of = append(of, k.GetDevice())
	}
	if k.GetRank() >= 0 {
		of = append(of, fmt.Sprintf("rank %d", k.GetRank()))
	}
	if len(of) == 0 {
		of = append(of, node)
	}
	return fmt.Sprintf("%s: %s, %s. %s",
		strings.Join(of, ", "), k.GetText(),
		phrase.Clock(time.Unix(0, k.GetAtUnixNs()), s.EngineNow(), s.Zone), k.GetAdvice())
}

// KernelOf is the newest that a kernel has said of a rank or its device, "" = nothing.
func KernelOf(s *State, rank int32) string {
	device := s.Roster.View(rank).GetDevice()
	node := s.NodeOf(rank)
	for _, n := range s.Snap().GetNodes() {
		if n.GetNode() != node {
			continue
		}
		for _, k := range slices.Backward(n.GetKernel()) {
			if k.GetRank() == rank || k.GetDevice() != "" && k.GetDevice() == device {
				return fmt.Sprintf("kernel %s: %s",
					phrase.Clock(time.Unix(0, k.GetAtUnixNs()), s.EngineNow(), s.Zone),
					k.GetText())
			}
		}
	}
	return ""
}
