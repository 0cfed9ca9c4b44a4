package validate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

// Bounds of the link picker: more nodes than these have too many pairs to pick
// from, and one validation tests no more links than that.
const (
	nodesMost  = 48
	pickedMost = 256
)

// candidate is a link to pick.
type candidate struct {
	link string
	why  string // it is suspicious; empty = a pair of nodes like others
}

// candidates lists links, each once: the suspicious ones, then all pairs of the nodes
// of the picked ranks, or of all. More explains what is left out.
func (p *Page) candidates(s *page.State) (out []candidate, more string) {
	seen := map[string]bool{}
	add := func(link, why string) {
		if l, err := falcon.ParseLink(link); err == nil && !seen[l.String()] {
			seen[l.String()] = true
			out = append(out, candidate{l.String(), why})
		}
	}
	for _, i := range s.Snap().GetIncidents() {
		for _, l := range i.GetVerdict().GetLinks() {
			add(l, "named by "+i.GetId())
		}
	}
	for _, v := range s.ValidationList() {
		for _, l := range v.GetLinks() {
			if l.GetSlow() {
				add(l.GetLink(), fmt.Sprintf("%.2f× in %s", l.GetRatio(), v.GetId()))
			}
		}
	}
	for _, x := range s.Snap().GetRecurring() {
		add(x.GetLink(), fmt.Sprintf("named by %d incidents", x.GetTimes()))
	}
	nodes := nodesToTest(s)
	if len(nodes) > nodesMost {
		return out, fmt.Sprintf("pick ranks first (L): these are more than %d nodes, too many pairs to list",
			nodesMost)
	}
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			add(falcon.NewLink(a, b).String(), "")
		}
	}
	return out, ""
}

// nodesToTest are the nodes of the picked ranks, or of all, in their order of
// ranks; one more than nodesMost at most.
func nodesToTest(s *page.State) []falcon.Node {
	picks := s.Picks()
	seen := map[falcon.Node]bool{}
	var out []falcon.Node
	for i, r := range s.Roster.Views() {
		if len(picks) > 0 {
			if _, in := slices.BinarySearch(picks, i); !in {
				continue
			}
		}
		if n := falcon.Device(r.GetDevice()).Node(); n != "" && !seen[n] {
			seen[n] = true
			if out = append(out, n); len(out) > nodesMost {
				break
			}
		}
	}
	return out
}

// Links are the picked links, sorted; none while ranks are picked from.
func (p *Page) Links() []string {
	if !p.byLink {
		return nil
	}
	return slices.Sorted(maps.Keys(p.picked))
}

func (p *Page) pickLinkAt(s *page.State) {
	list, _ := p.candidates(s)
	if p.row < 0 || p.row >= len(list) {
		return
	}
	link := list[p.row].link
	if p.picked[link] {
		delete(p.picked, link)
	} else if len(p.picked) < pickedMost {
		p.picked[link] = true
	}
}

// drawLinks draws the picker.
func (p *Page) drawLinks(c *widget.Canvas, r widget.Rect, s *page.State) {
	list, more := p.candidates(s)
	what := "none picked: every link is tested"
	if len(p.picked) > 0 {
		what = fmt.Sprintf("%d of %d picked", len(p.picked), len(list))
	}
	body := c.Rule(r, "TEST LINKS", what+"  ·  "+p.linkKindText())
	if more != "" {
		var foot widget.Rect
		body, foot = body.Rows(body.H - 1)
		c.Pen(foot).Put(themes.Dim, more)
	}
	if len(list) == 0 {
		page.Empty(
			c,
			body,
			"no link is suspicious, and no pair of nodes to pick from is known; "+
				s.Key(key.Validate, key.Links)+" picks ranks",
		)
		return
	}
	p.row = max(0, min(p.row, len(list)-1))
	from := firstShownRow(p.row, body.H, len(list))
	for i := from; i < len(list) && i-from < body.H; i++ {
		p.drawLinkRow(
			c,
			widget.Rect{
				X: body.X,
				Y: body.Y + i - from,
				W: body.W,
				H: 1,
			},
			list[i],
			i == p.row,
		)
	}
}

func (p *Page) linkKindText() string {
	if gpus, _ := p.kind.Covers(); gpus {
		return "links, and GPUs at their ends"
	}
	return "links only"
}

func (p *Page) drawLinkRow(c *widget.Canvas, r widget.Rect, x candidate, cursor bool) {
	pen := c.Pen(r)
	text := themes.Text
	warn := themes.Warn
	if cursor {
		pen = c.SelectedPen(r)
		text = themes.Selected
		warn = themes.Selected
	}
	box := "[ ] "
	if p.picked[x.link] {
		box = "[x] "
	}
	pen.Put(text, box+fmt.Sprintf("%-16s ", widget.Cut(x.link, 16)))
	if x.why != "" {
		pen.Put(warn, "▲ suspicious: "+x.why)
	}
}
