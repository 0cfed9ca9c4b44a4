package record

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// span is a range of fractions that are kept equally fine.
type span struct {
	from, step float64
	first      int64 // steps before it
}

// spans are so fine that no page shows a difference: what it prints is rounded
// at whole steps, and a value is played back as the middle of its step. From
// 100 ms on pages show whole milliseconds, from 10 s on tenths of a second.
var spans = []span{{10_000, 5, 236_000}, {100, 0.05, 38_000}, {10, 0.005, 20_000}, {0, 0.0005, 0}}

// hair keeps 1.1, say, in the step that begins there, although it is a little
// less in binary.
const hair = 1e-6

// round maps a fraction to whole steps; 0 stays 0.
func round(x float64) int64 { return stepOf(spans, x) }

// unround is the middle of a step.
func unround(n int64) float64 { return middle(spans, n) }

// stepOf is the step that x lies in; 0 stays 0.
func stepOf(spans []span, x float64) int64 {
	switch {
	case x == 0 || math.IsNaN(x):
		return 0
	case x < 0:
		return -stepOf(spans, -x)
	}
	x = min(x, 1e12)
	for _, s := range spans {
		if x >= s.from {
			return 1 + s.first + int64(math.Floor((x-s.from)/s.step+hair))
		}
	}
	return 0
}

func middle(spans []span, n int64) float64 {
	switch {
	case n == 0:
		return 0
	case n < 0:
		return -middle(spans, max(-n, 0))
	}
	for _, s := range spans {
		if n > s.first {
			return s.from + s.step*(float64(n-1-s.first)+0.5)
		}
	}
	return 0
}

// cell says how a field of a table's rows is kept.
type cell struct {
	field protoreflect.FieldDescriptor
	text  bool
	time  bool // nanoseconds, kept to the millisecond
}

// cells lists the fields of a message that a table can hold: all but lists
// and nested messages.
func cells(d protoreflect.MessageDescriptor) []cell {
	var out []cell
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.IsList() || f.IsMap() || f.Message() != nil || f.Kind() == protoreflect.BytesKind {
			continue
		}
		out = append(out, cell{f, f.Kind() == protoreflect.StringKind, strings.HasSuffix(string(f.Name()), "_unix_ns")})
	}
	return out
}

// number is a field's value in whole steps.
func (c cell) number(v protoreflect.Value) int64 {
	switch c.field.Kind() {
	case protoreflect.BoolKind:
		if v.Bool() {
			return 1
		}
		return 0
	case protoreflect.EnumKind:
		return int64(v.Enum())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return round(v.Float())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return int64(v.Uint())
	}
	if c.time {
		return v.Int() / int64(time.Millisecond)
	}
	return v.Int()
}

// value is number's inverse.
func (c cell) value(n int64) protoreflect.Value {
	switch c.field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(unround(n)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(unround(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	}
	if c.time {
		n *= int64(time.Millisecond)
	}
	return protoreflect.ValueOfInt64(n)
}
