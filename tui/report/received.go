package report

import (
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/failslow/falcon/tui/clean"
)

// received is a copy of a message with every string cleaned and every number
// one that JSON can hold: 0 where it is not, and a map without it.
func received[M proto.Message](m M) M {
	out := proto.CloneOf(m)
	clean.Message(out)
	finiteMessage(out.ProtoReflect())
	return out
}

func finiteMessage(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			finiteMap(f.MapValue(), v.Map())
		case f.IsList():
			finiteList(f, v.List())
		case f.Message() != nil:
			finiteMessage(v.Message())
		case !isFinite(f, v):
			m.Clear(f)
		}
		return true
	})
}

func finiteList(f protoreflect.FieldDescriptor, l protoreflect.List) {
	for i := range l.Len() {
		switch v := l.Get(i); {
		case f.Message() != nil:
			finiteMessage(v.Message())
		case !isFinite(f, v):
			l.Set(i, l.NewElement())
		}
	}
}

func finiteMap(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		switch {
		case f.Message() != nil:
			finiteMessage(v.Message())
		case !isFinite(f, v):
			m.Clear(k)
		}
		return true
	})
}

// isFinite reports whether v is no number, or one that JSON can hold.
func isFinite(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	if f.Kind() != protoreflect.DoubleKind && f.Kind() != protoreflect.FloatKind {
		return true
	}
	return !math.IsNaN(v.Float()) && !math.IsInf(v.Float(), 0)
}
