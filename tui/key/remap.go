package key

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	bubbles "charm.land/bubbles/v2/key"
)

// ErrRemap is wrapped by everything that Remap refuses.
var ErrRemap = errors.New("keys")

// grave actions decide something, or lead to a dialog that does. None of them
// may lie on a key that one moves with.
var grave = []Action{
	Approve, Veto, Undo, Mode, Freeze, Quit, TakeRung, RunTest, StopTest, AbortRecovery,
	StateEnded, FenceNode, RenewRank, LiftFence,
}

// Decides reports whether an action decides something, or leads to a dialog that does.
func Decides(a Action) bool {
	return a != Quit && slices.Contains(grave, a)
}

// AtOnce reports whether an action has its effect without a dialog between.
func AtOnce(a Action) bool { return slices.Contains(atOnce, a) }

var atOnce = []Action{Ack, Quit}

// moves are the actions that one presses often and without looking.
var moves = []Action{
	Up, Down, Left, Right, First, Last, PageUp, PageDown, Next, Prev, Open, Pick, Older, Newer,
	NextPage, PrevPage, Back,
}

// navigation keys move in most programs, whatever they are bound to here.
var navigation = []string{
	"h", "j", "k", "l", "up", "down", "left", "right", "enter", "space", "tab", "shift+tab", "esc",
	"home", "end", "pgup", "pgdown", "backspace",
}

// Remap is the table with other keys for some actions, as scope → action →
// keys. An empty list takes an action's keys away. What would make a key mean
// two things, or a decision easy to press by mistake, is refused with one
// sentence that says what to do instead; it wraps ErrRemap.
func (m *Map) Remap(changes map[string]map[string][]string) (*Map, error) {
	out := &Map{slices.Clone(m.list)}
	for _, scope := range slices.Sorted(maps.Keys(changes)) {
		for _, action := range slices.Sorted(maps.Keys(changes[scope])) {
			if err := out.rebindAction(Scope(scope), Action(action), changes[scope][action]); err != nil {
				return nil, fmt.Errorf("%w: %s.%s: %w", ErrRemap, scope, action, err)
			}
		}
	}
	if err := out.checkConflicts(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRemap, err)
	}
	return out, nil
}

func (m *Map) rebindAction(s Scope, a Action, keys []string) error {
	if !slices.Contains(Scopes(), s) {
		return fmt.Errorf("there is no scope %q; the scopes are %s", s, joinNames(Scopes()))
	}
	i := slices.IndexFunc(m.list, func(b Binding) bool {
		return b.Scope == s && b.Action == a
	})
	if i < 0 {
		return fmt.Errorf("there is no action %q there; `falcon console keys` lists them", a)
	}
	if s == Dialog && (a == Confirm || a == Cancel) {
		return errors.New(
			"a dialog's confirm and cancel stay as they are, so that a decision always reads alike; remove the line",
		)
	}
	if len(keys) == 0 && isRequired(s, a) {
		return errors.New("it needs a key, as there is no other way to do it; name one")
	}
	for _, k := range keys {
		if err := checkKeyName(k); err != nil {
			return err
		}
	}
	b := m.list[i]
	b.Binding = bubbles.NewBinding(
		bubbles.WithKeys(slices.Clone(keys)...),
		bubbles.WithHelp(shownKeys(keys), b.Help().Desc),
	)
	m.list[i] = b
	return nil
}

// isRequired actions must keep a key: the ways out, and those of text entries and dialogs.
func isRequired(s Scope, a Action) bool {
	return slices.Contains(modal, s) && a != EraseWord && a != EraseAll ||
		slices.Contains([]Action{Quit, ShowHelp, Command}, a)
}

// checkConflicts returns what is wrong with the table as a whole, or nil.
func (m *Map) checkConflicts() error {
	for _, b := range m.list {
		for _, k := range b.Keys() {
			if err := m.checkHarmless(b, k); err != nil {
				return err
			}
		}
	}
	for _, set := range Together() {
		if err := m.unambiguous(set); err != nil {
			return err
		}
	}
	return nil
}

func (m *Map) unambiguous(set []Scope) error {
	seen := map[string]Binding{}
	for _, s := range set {
		for _, b := range m.In(s) {
			for _, k := range b.Keys() {
				if old, dup := seen[k]; dup {
					return fmt.Errorf("%q would mean both %s.%s and %s.%s; give one of them another key",
						k, old.Scope, old.Action, b.Scope, b.Action)
				}
				seen[k] = b
			}
		}
	}
	return nil
}

// checkHarmless returns why a key must not do what a binding says, or nil.
func (m *Map) checkHarmless(b Binding, k string) error {
	if (b.Scope == Dialog || b.Scope == Prompt) && typesText(k) {
		return fmt.Errorf("%s.%s can't be %q, which types a character there; use a key such as ctrl+n",
			b.Scope, b.Action, k)
	}
	if slices.Contains(modal, b.Scope) || !slices.Contains(grave, b.Action) {
		return nil
	}
	if slices.Contains(navigation, k) {
		return fmt.Errorf("%s.%s can't be %q, which one presses to move; choose a key away from those",
			b.Scope, b.Action, k)
	}
	for _, o := range m.list {
		if slices.Contains(moves, o.Action) &&
			!slices.Contains(modal, o.Scope) &&
			slices.Contains(o.Keys(), k) {
			return fmt.Errorf("%s.%s can't be %q, which moves as %s.%s; choose another key",
				b.Scope, b.Action, k, o.Scope, o.Action)
		}
	}
	return nil
}

// typesText reports whether a key enters a character where text is asked for.
func typesText(k string) bool {
	return k == "space" || utf8.RuneCountInString(k) == 1
}

func joinNames[T ~string](names []T) string {
	var out []string
	for _, n := range names {
		out = append(out, string(n))
	}
	return strings.Join(out, ", ")
}

// same are keys that reach most terminals as others.
var same = map[string]string{
	"ctrl+i": "tab",
	"ctrl+m": "enter",
	"ctrl+[": "esc",
}

// named are the keys that have a name, as the terminal library calls them.
var named = []string{
	"enter", "esc", "tab", "space", "backspace", "delete", "insert", "home", "end", "pgup",
	"pgdown", "up", "down", "left", "right",
	"f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12",
}

// checkKeyName returns what is wrong with a key's name, or nil.
func checkKeyName(k string) error {
	rest := k
	mods := 0
	for _, m := range []string{"ctrl+", "alt+", "shift+"} { // the order in which the library writes them
		if tail, ok := strings.CutPrefix(rest, m); ok && tail != "" {
			rest = tail
			mods++
		}
	}
	if slices.Contains(named, rest) {
		return nil
	}
	r, n := utf8.DecodeRuneInString(rest)
	switch {
	case same[k] != "":
		return fmt.Errorf("terminals can't tell %q from %q; choose another key", k, same[k])
	case n != len(rest) ||
		r == utf8.RuneError ||
		!unicode.IsGraphic(r) ||
		unicode.IsSpace(r):
		return fmt.Errorf(
			"%q is no key; write a character, or one of %s, with ctrl+, alt+ or shift+ before it",
			k, strings.Join(named, ", "),
		)
	case mods > 0 && unicode.IsUpper(r):
		return fmt.Errorf("%q: write the letter small, as %q",
			k, strings.TrimSuffix(k, rest)+strings.ToLower(rest))
	case strings.Contains(k[:len(k)-len(rest)], "shift+"):
		return fmt.Errorf("%q: write what the key types with shift, such as %q", k, strings.ToUpper(rest))
	}
	return nil
}

// symbols stand for keys whose name is longer than what one reads.
var symbols = map[string]string{
	"up":    "↑",
	"down":  "↓",
	"left":  "←",
	"right": "→",
}

// Shown is a key as the operator reads it.
func Shown(k string) string {
	if s, ok := symbols[k]; ok {
		return s
	}
	if len(k) > 1 {
		return strings.ReplaceAll(k, "+", "-")
	}
	return k
}

// shownKeys is what the help shows of several keys: the first two, which fit.
func shownKeys(keys []string) string {
	var out []string
	for _, k := range keys[:min(2, len(keys))] {
		out = append(out, Shown(k))
	}
	return strings.Join(out, " ")
}
