package ladder

import (
	"fmt"
	"slices"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// Chosen is the rung under the cursor, or nil.
func (p *Page) Chosen(s *page.State) *falconv1.RungView {
	rungs := s.Snap().GetLadder().GetRungs()
	if len(rungs) == 0 {
		return nil
	}
	return rungs[p.cursorRung(s)]
}

// Explain says of a rung what it would do, when it is due, who decides and
// what happens when it does not help.
func Explain(g *falconv1.RungView, w int) string {
	var what []string
	if len(g.MicroBatches) > 0 {
		what = append(what, "Micro-batches then "+splitText(g.MicroBatches, w))
	}
	return explainRung(g, append(what, Preview(g.Preview)...))
}

// briefText is Explain without what the page shows as a table or a grid.
func briefText(g *falconv1.RungView) string {
	return explainRung(g, append(exchangeLines(g.Preview), moveLines(g.Preview)...))
}

func exchangeLines(v *falconv1.Preview) []string {
	if text := swapNames(v); text != "" {
		return []string{"Changes places: " + text}
	}
	return nil
}

func explainRung(g *falconv1.RungView, what []string) string {
	parts := []string{phrase.RungName(g) + phrase.Prefixed(": ", g.Reason)}
	if g.Applicable {
		parts = append(parts, what...)
		if c := dueSentence(g); c != "" {
			parts = append(parts, c)
		}
		if who := approvals[g.Approval]; who != "" {
			parts = append(parts, who)
		}
		if g.IfWrong != "" {
			parts = append(parts, "If wrong: "+g.IfWrong)
		}
	}
	return strings.Join(parts, ". ")
}

var approvals = map[string]string{
	falcon.ApprovalAuto:   "Policy lets it act by itself",
	falcon.ApprovalPerson: "It waits for a person",
	falcon.ApprovalNever:  "Policy forbids it",
}

func dueSentence(g *falconv1.RungView) string {
	switch {
	case !g.Next:
		return ""
	case g.ClockMs <= 0:
		return "It is due"
	}
	return "Due once " +
		phrase.Ms(g.ClockMs) +
		" more are lost" +
		phrase.Prefixed(", in about ", phrase.Span(g.DueInMs))
}

// dueText is when a rung is proposed, in a few columns.
func dueText(g *falconv1.RungView) string {
	if g.DueInMs <= 0 {
		return "waits"
	}
	return "in " + phrase.Span(g.DueInMs)
}

// Preview describes what a placement would change, in sentences.
func Preview(v *falconv1.Preview) []string {
	if v == nil {
		return nil
	}
	out := exchangeLines(v)
	for _, side := range []struct {
		of   []*falconv1.LinksOf
		what string
	}{{v.Left, "leave"}, {v.Joined, "join"}} {
		for _, l := range side.of {
			if len(l.Links) > 0 {
				out = append(out, fmt.Sprintf("%s %s %s",
					fewNames(l.Links), side.what, strings.ToUpper(l.Dimension)))
			}
		}
	}
	return append(out, moveLines(v)...)
}

// moveLines describes what a placement costs, and where slow devices are afterwards.
func moveLines(v *falconv1.Preview) []string {
	if v == nil {
		return nil
	}
	var out []string
	if v.MovedMb > 0 || v.CopyMs > 0 {
		out = append(out, fmt.Sprintf("Moves %s, about %s",
			sizeText(v.MovedMb), phrase.Ms(v.CopyMs)))
	}
	if len(v.Stages) > 0 {
		out = append(out, fmt.Sprintf("Slow devices then in stages %s of replicas %s",
			numberList(v.Stages), numberList(v.Replicas)))
	}
	if len(v.Splits) > 0 {
		out = append(out, "Best split there: "+splitText(v.Splits, previewW))
	}
	return out
}

// previewW is the room for a split in a preview.
const previewW = 50

// splitText describes micro-batches by replica in about w columns, else their range.
func splitText(m []int32, w int) string {
	if s := strings.Join(numberNames(m), " "); len(s) <= w || len(m) == 0 {
		return s
	}
	return fmt.Sprintf("%d to %d in %d replicas", slices.Min(m), slices.Max(m), len(m))
}

func swapNames(v *falconv1.Preview) string { return fewNames(swapPairs(v)) }

// listMost is how many names of a list are listed before it is cut short.
const listMost = 4

func fewNames(names []string) string { return phrase.Few(names, listMost) }

func numberList(v []int32) string {
	return fewNames(numberNames(slices.Sorted(slices.Values(v))))
}

func numberNames(v []int32) []string {
	names := make([]string, len(v))
	for i, n := range v {
		names[i] = fmt.Sprint(n)
	}
	return names
}

func sizeText(mb float64) string {
	if mb >= 1000 {
		return fmt.Sprintf("%.1f GB", mb/1000)
	}
	return fmt.Sprintf("%.0f MB", mb)
}

// SwapSteps describes how a placement went, or "".
func SwapSteps(a *falconv1.Action) string {
	if len(a.StepMs) != len(stepNames) {
		return ""
	}
	parts := make([]string, len(stepNames))
	for i, name := range stepNames {
		parts[i] = name + " " + phrase.Ms(a.StepMs[i])
	}
	return strings.Join(parts, ", ") + "; " + sizeText(a.MovedMb) + " moved"
}

var stepNames = [...]string{"pause", "dump", "swap", "restore"}
