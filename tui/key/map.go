package key

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	bubbles "charm.land/bubbles/v2/key"
)

// Map is a table of keys; it never changes once it is made.
type Map struct{ list []Binding }

// Default is the table as it is shipped.
var Default = sync.OnceValue(func() *Map { return &Map{table} })

// added scopes hold beside the page's and Global.
var added = []Scope{Replay}

// modal scopes own the keyboard alone; the others are looked up together with Global.
var modal = []Scope{Fleet, Dialog, Prompt, Help, Output}

// Scopes lists the scopes in the order in which help shows them.
func Scopes() []Scope {
	return slices.Concat([]Scope{Global}, Pages, added, modal)
}

// Together lists the scopes that are looked up at once: within them a key is unique.
func Together() [][]Scope {
	sets := [][]Scope{{Global}}
	for _, s := range modal {
		sets = append(sets, []Scope{s})
	}
	for _, p := range Pages {
		sets = append(sets, slices.Concat(added, []Scope{p, Global}))
	}
	return sets
}

// Table lists every binding, in the order in which help shows them.
func (m *Map) Table() []Binding { return slices.Clone(m.list) }

// Lookup finds what a key does in the first of the scopes that binds it.
func (m *Map) Lookup(k fmt.Stringer, scopes ...Scope) Action {
	for _, s := range scopes {
		for _, b := range m.list {
			if b.Scope == s && bubbles.Matches(k, b.Binding) {
				return b.Action
			}
		}
	}
	return None
}

// In lists the bindings of a scope in the table's order.
func (m *Map) In(s Scope) []Binding {
	var out []Binding
	for _, b := range m.list {
		if b.Scope == s {
			out = append(out, b)
		}
	}
	return out
}

// Footer lists the bindings of the footer, scope by scope, most useful first.
func (m *Map) Footer(scopes ...Scope) []Binding {
	var out []Binding
	for _, s := range scopes {
		part := slices.DeleteFunc(m.In(s), func(b Binding) bool {
			return b.Footer == 0 || len(b.Keys()) == 0
		})
		slices.SortStableFunc(part, func(x, y Binding) int {
			return x.Footer - y.Footer
		})
		out = append(out, part...)
	}
	return out
}

// ForAction is the binding of an action in a scope; one without keys where there is none.
func (m *Map) ForAction(s Scope, a Action) Binding {
	for _, b := range m.list {
		if b.Scope == s && b.Action == a {
			return b
		}
	}
	return Binding{}
}

// Name is the key of an action as shown; the first of the scopes that has it counts.
func (m *Map) Name(a Action, scopes ...Scope) string {
	for _, s := range scopes {
		if b := m.ForAction(s, a); len(b.Keys()) > 0 {
			first, _, _ := strings.Cut(b.Help().Key, " ")
			return first
		}
	}
	return "(no key)"
}

// Markdown is the table as the user's guide prints it.
func (m *Map) Markdown() string {
	var b strings.Builder
	for _, s := range Scopes() {
		list := m.In(s)
		if len(list) == 0 {
			continue
		}
		fmt.Fprintf(&b, "### %s%s\n\n| Key | What it does | Name for `[keys]` |\n|---|---|---|\n",
			strings.ToUpper(string(s[:1])), s[1:])
		for _, x := range list {
			fmt.Fprintf(&b, "| %s | %s | `%s.%s` |\n", markdownKeys(x), x.Sentence, s, x.Action)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func markdownKeys(b Binding) string {
	if len(b.Keys()) == 0 {
		return "(none)"
	}
	var names []string
	for _, k := range b.Keys() {
		names = append(names, "`"+strings.ReplaceAll(Shown(k), "|", `\|`)+"`")
	}
	return strings.Join(names, " ")
}
