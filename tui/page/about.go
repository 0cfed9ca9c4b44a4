package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// Few is the number of ranks below which pages show them one by one.
const Few = 64

// AboutRows is how many lines AboutRank has.
const AboutRows = 3

// AboutRank is what is known of a rank besides its measurements: its process and agent, who
// shares its node, what it was named for, and how it was tested.
func AboutRank(s *State, rank int32, w int) []Line {
	v := s.Roster.View(rank)
	if v == nil {
		return nil
	}
	var out []Line
	add := func(role themes.Role, text string) {
		out = append(out, Line{Text: widget.Cut(text, w), Role: role})
	}
	add(themes.Text, processText(s, rank)+AgentText(s, roster.NodeOf(v.Device))+"; "+neighboursText(s, rank))
	if text := DeviceHistory(s, v.Device); text != "" {
		add(themes.Warn, "named: "+text[len(v.Device)+2:])
	} else {
		add(themes.Dim, "named: not so far")
	}
	tested, slow := testedText(s, rank)
	role := themes.Dim
	if slow {
		role = themes.Warn
	}
	add(role, tested)
	return out
}

func processText(s *State, rank int32) string {
	switch pids := s.Snap().GetRecent().GetPids(); {
	case int(rank) >= len(pids): // they come with small jobs only
		return ""
	case pids[rank] > 0:
		return fmt.Sprintf("pid %d; ", pids[rank])
	}
	return "pid not known; "
}

// AgentText is how the agent of a node does.
func AgentText(s *State, node string) string {
	for _, n := range s.Snap().GetNodes() {
		if n.GetNode() != node {
			continue
		}
		age := phrase.Ms(float64(n.GetAgeMs()))
		which := phrase.Prefixed(" ", n.GetVersion())
		if !n.GetConnected() {
			return fmt.Sprintf("agent%s on %s lost, last heard %s ago", which, node, age)
		}
		return fmt.Sprintf("agent%s on %s heard %s ago%s",
			which, node, age, phrase.Prefixed("; ", phrase.Standbys(n.GetStandbys())))
	}
	return "no agent on " + cmp.Or(node, "its node")
}

// neighboursMost bounds the ranks of a node that are named.
const neighboursMost = 8

func neighboursText(s *State, rank int32) string {
	var others []int32
	nodes := s.Roster.Hosts().NodeOf
	for r, node := range nodes {
		if node == nodes[rank] && int32(r) != rank {
			others = append(others, int32(r))
		}
	}
	if len(others) == 0 {
		return "alone on its node"
	}
	return "same node: " + phrase.Ranks(others, neighboursMost)
}

// testedText is the newest test that a rank took part in, of those that are known here.
func testedText(s *State, rank int32) (text string, slow bool) {
	for _, v := range s.ValidationList() {
		if text, slow, ok := testResult(v, rank); ok {
			when := ""
			if v.AtUnixNs > 0 {
				when = " " + Ago(s.EngineNow().Sub(time.Unix(0, v.AtUnixNs)))
			}
			return "tested: " + v.Id + when + ": " + text, slow
		}
	}
	return "tested: not since this engine began to list tests", false
}

func testResult(v *falconv1.Validation, rank int32) (text string, slow, ok bool) {
	var parts []string
	i := slices.IndexFunc(v.GetGemm(), func(g *falconv1.GemmResult) bool {
		return g.GetRank() == rank
	})
	if i >= 0 {
		g := v.Gemm[i]
		slow = g.GetSlow()
		parts = append(parts, fmt.Sprintf("matrix products %s, %.2f× the median%s",
			phrase.Ms(g.Ms), g.Ratio, judged(g.GetSlow(), g.GetUnjudged()+g.GetErr())))
	}
	links, slowLinks := 0, 0
	for _, l := range v.GetLinks() {
		if l.GetFrom() == rank || l.GetTo() == rank {
			links++
			if l.GetSlow() {
				slowLinks++
			}
		}
	}
	if links > 0 {
		slow = slow || slowLinks > 0
		parts = append(parts, fmt.Sprintf("%d of its %s slow", slowLinks, countOf(links, "link")))
	}
	return strings.Join(parts, "; "), slow, len(parts) > 0
}

func judged(slow bool, why string) string {
	switch {
	case why != "":
		return ", not judged: " + why
	case slow:
		return ", slow"
	}
	return ", fine"
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
