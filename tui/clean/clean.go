// Package clean strips what must never reach a terminal from text that
// another machine sent: C0 and C1 controls, escape sequences, bidirectional
// controls and other invisible format characters.
//
// It guarantees that String's result holds printable characters only, on one
// line, and that Message leaves no string of a protobuf message unclean. It
// owns no goroutines and does no I/O.
package clean

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxRunes bounds one remote string; the rest becomes an ellipsis.
const MaxRunes = 4096

// String returns s without anything that could steer a terminal. Line breaks
// and tabs become spaces; broken UTF-8 becomes U+FFFD.
func String(s string) string {
	if isHarmless(s) {
		return s
	}
	var b strings.Builder
	n := 0
	for _, r := range dropSequences(s) {
		r, keep := printable(r)
		if !keep {
			continue
		}
		if n == MaxRunes {
			b.WriteRune('…')
			break
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// isHarmless is the fast path: printable ASCII of sane length.
func isHarmless(s string) bool {
	if len(s) > MaxRunes {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

func printable(r rune) (rune, bool) {
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return ' ', true
	case r == utf8.RuneError:
		return r, true
	case unicode.Is(unicode.Zs, r):
		return ' ', true
	case drawsNothing(r):
		return 0, false
	case !unicode.IsPrint(r): // controls, bidi, zero-width, private, unassigned
		return 0, false
	case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r): // stacked marks
		return 0, false
	}
	return r, true
}

// drawsNothing reports whether a letter is drawn as nothing, though Unicode calls it a
// letter: Hangul fillers, which would hide a difference between two names.
func drawsNothing(r rune) bool {
	return r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0
}

// dropSequences removes whole escape sequences, so that "\x1b[31mred" reads
// "red" and not "[31mred". What it misses is harmless: ESC itself goes in
// printable.
func dropSequences(s string) string {
	if !strings.ContainsAny(s, "\x1b\u0090\u0098\u009b\u009d\u009e\u009f") {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		if n := skipSequence(s); n > 0 {
			s = s[n:]
			continue
		}
		_, n := utf8.DecodeRuneInString(s)
		b.WriteString(s[:n])
		s = s[n:]
	}
	return b.String()
}

// skipSequence is the length of the escape sequence that s starts with, else 0.
func skipSequence(s string) int {
	kind, head := introducer(s)
	switch kind {
	case '[':
		return head + skipCSI(s[head:])
	case ']', 'P', 'X', '^', '_':
		return head + untilTerminator(s[head:])
	}
	return head
}

// introducer reads ESC x or the single C1 character that means the same.
func introducer(s string) (kind byte, n int) {
	if s[0] == 0x1b {
		if len(s) == 1 || s[1] < 0x20 || s[1] > 0x7e {
			return 0, 1
		}
		return s[1], 2
	}
	if len(s) >= 2 && s[0] == 0xc2 && s[1] >= 0x80 && s[1] <= 0x9f {
		return s[1] - 0x40, 2
	}
	return 0, 0
}

// skipCSI is the length of parameters, intermediates and the final byte.
func skipCSI(s string) int {
	for i := range len(s) {
		if s[i] >= 0x40 && s[i] <= 0x7e {
			return i + 1
		}
		if s[i] < 0x20 || s[i] > 0x3f {
			return i
		}
	}
	return len(s)
}

// untilTerminator is the length of a string sequence up to BEL or ST.
func untilTerminator(s string) int {
	for i := range len(s) {
		switch {
		case s[i] == 0x07:
			return i + 1
		case s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case s[i] == 0xc2 && i+1 < len(s) && s[i+1] == 0x9c:
			return i + 2
		}
	}
	return len(s)
}

// Message cleans every string of m in place, nested ones included.
func Message(m proto.Message) {
	if m != nil {
		Walk(m.ProtoReflect(), cleanField)
	}
}

func cleanField(f protoreflect.FieldDescriptor) Replace {
	if f.Kind() == protoreflect.StringKind {
		return cleanValue
	}
	return nil
}

func cleanValue(v protoreflect.Value) (protoreflect.Value, bool) {
	old := v.String()
	now := String(old)
	return protoreflect.ValueOfString(now), now != old
}

// Replace returns what takes a scalar's place, an invalid value for none, and whether anything does.
type Replace func(protoreflect.Value) (protoreflect.Value, bool)

// Walk replaces scalars of m in place, those of lists, maps and nested messages included, by
// what of picks for their field; nil leaves a field as it is.
func Walk(m protoreflect.Message, of func(protoreflect.FieldDescriptor) Replace) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			walkMap(f, v.Map(), of)
		case f.IsList():
			walkList(f, v.List(), of)
		case f.Message() != nil:
			Walk(v.Message(), of)
		default:
			replaceValue(of(f), v, func(now protoreflect.Value) {
				m.Set(f, now)
			}, func() { m.Clear(f) })
		}
		return true
	})
}

func walkList(
	f protoreflect.FieldDescriptor,
	l protoreflect.List,
	of func(protoreflect.FieldDescriptor) Replace,
) {
	by := of(f)
	if by == nil && f.Message() == nil {
		return
	}
	for i := range l.Len() {
		if f.Message() != nil {
			Walk(l.Get(i).Message(), of)
			continue
		}
		set := func(now protoreflect.Value) { l.Set(i, now) }
		replaceValue(by, l.Get(i), set, func() { set(l.NewElement()) })
	}
}

func walkMap(
	f protoreflect.FieldDescriptor,
	m protoreflect.Map,
	of func(protoreflect.FieldDescriptor) Replace,
) {
	type rename struct{ from, to protoreflect.MapKey }
	var renames []rename
	values, keys := of(f.MapValue()), of(f.MapKey())
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if f.MapValue().Message() != nil {
			Walk(v.Message(), of)
		}
		replaceValue(values, v, func(now protoreflect.Value) {
			m.Set(k, now)
		}, func() { m.Clear(k) })
		replaceValue(keys, k.Value(), func(now protoreflect.Value) {
			renames = append(renames, rename{k, now.MapKey()})
		}, nil)
		return true
	})
	for _, r := range renames {
		v := m.Get(r.from)
		m.Clear(r.from)
		m.Set(r.to, v)
	}
}

func replaceValue(by Replace, v protoreflect.Value, set func(protoreflect.Value), clear func()) {
	if by == nil {
		return
	}
	switch now, changed := by(v); {
	case !changed:
	case now.IsValid():
		set(now)
	default:
		clear()
	}
}
