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
	clean.Walk(out.ProtoReflect(), finiteField)
	return out
}

func finiteField(f protoreflect.FieldDescriptor) clean.Replace {
	if f.Kind() != protoreflect.DoubleKind && f.Kind() != protoreflect.FloatKind {
		return nil
	}
	return func(v protoreflect.Value) (protoreflect.Value, bool) {
		return protoreflect.Value{}, math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0)
	}
}
