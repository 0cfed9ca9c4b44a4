package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
)

// Peek is what a node's agent has read for a person.
type Peek struct {
	What  string     `json:"what"` // "log", "stack", "kernel"
	Node  string     `json:"node"`
	Rank  int32      `json:"rank"` // -1 = of the node
	State string     `json:"state,omitempty"`
	At    string     `json:"at"`
	Parts []PeekPart `json:"parts"`
}

// PeekPart is the newest lines of one source.
type PeekPart struct {
	Source  string   `json:"source"`
	Path    string   `json:"path,omitempty"`
	Note    string   `json:"note,omitempty"`
	Changed string   `json:"changed,omitempty"` // when it was last written to, UTC
	Bytes   int64    `json:"bytes"`
	Lines   []string `json:"lines"`

	changed time.Time
}

// PeekOf makes the document of an answer, cleaned.
func PeekOf(what string, r *falconv1.PeekReply) Peek {
	clean.Message(r)
	out := Peek{
		What:  what,
		Node:  r.GetNode(),
		Rank:  r.GetRank(),
		State: r.GetState(),
		At:    utcText(r.GetAtUnixNs()),
		Parts: []PeekPart{},
	}
	for _, p := range r.GetParts() {
		one := PeekPart{
			Source: p.GetSource(),
			Path:   p.GetPath(),
			Note:   p.GetNote(),
			Bytes:  p.GetBytes(),
			Lines:  p.GetLines(),
		}
		if ns := p.GetChangedUnixNs(); ns > 0 {
			one.Changed = utcText(ns)
			one.changed = time.Unix(0, ns)
		}
		out.Parts = append(out.Parts, one)
	}
	return out
}

func utcText(ns int64) string {
	return time.Unix(0, ns).UTC().Format(time.RFC3339)
}

// Title says whose lines these are.
func (p Peek) Title() string {
	switch {
	case p.Rank < 0:
		return "node " + p.Node
	case p.State == "":
		return fmt.Sprintf("rank %d on %s", p.Rank, p.Node)
	}
	return fmt.Sprintf("rank %d on %s: %s", p.Rank, p.Node, p.State)
}

// Head is a part's own title: its source, and when it was last written to, in the zone.
func (p PeekPart) Head(zone *time.Location) string {
	var out []string
	if p.Path != "" {
		out = append(out, p.Path)
	}
	if !p.changed.IsZero() {
		out = append(out, "last written "+p.changed.In(cmp.Or(zone, time.UTC)).Format("15:04:05 MST"))
	}
	if p.Note != "" {
		out = append(out, p.Note)
	}
	if len(out) == 0 {
		return p.Source
	}
	return p.Source + ": " + strings.Join(out, ", ")
}

// Text is the whole as plain lines.
func (p Peek) Text() string {
	var b strings.Builder
	b.WriteString(p.Title() + "\n")
	for _, part := range p.Parts {
		b.WriteString("\n" + part.Head(time.UTC) + "\n")
		for _, l := range part.Lines {
			b.WriteString("  " + l + "\n")
		}
	}
	return b.String()
}
