package fleet

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what one frame may hold, checked on its bytes before it is decoded:
// a message of two bytes on the wire takes a hundred in memory. An honest agent
// stays far below: its largest frame is a profile of 24,000 timings.
const (
	elementsMost = 1 << 17  // messages, map entries and list items in one frame
	stringMost   = 16 << 10 // bytes of one string
	nameMost     = 256      // bytes of a name
	listMost     = 4096     // entries of a list that has no bound of its own
)

// lists are the bounds of repeated fields, by their full name.
var lists = map[protoreflect.FullName]int{
	"falcon.v1.Hello.devices":       256,
	"falcon.v1.RankState.comms":     256, // FALCON_COMMS_MAX of the hook
	"falcon.v1.RankState.traffic":   512,
	"falcon.v1.Traffic.peers":       1024, // bytes
	"falcon.v1.Samples.samples":     1 << 16,
	"falcon.v1.RankProfile.calls":   1 << 16,
	"falcon.v1.Beat.ranks":          1024,
	"falcon.v1.Telemetry.gpus":      256,
	"falcon.v1.Telemetry.nics":      512,
	"falcon.v1.Profile.ranks":       256,
	"falcon.v1.CommandResult.ranks": 1024,
	"falcon.v1.CommandResult.tests": 1024,
	"falcon.v1.Host.run_delay_ns":   1 << 14,
	"falcon.v1.Calls.ranks":         1024,
	"falcon.v1.RankCalls.comms":     256,
	"falcon.v1.RankCalls.calls":     256,
	"falcon.v1.Peeked.parts":        36,
	"falcon.v1.KernelNotes.notes":   16,
	"falcon.v1.PeekPart.lines":      512,
}

// names are the strings that are kept for as long as their owner lives.
var names = map[protoreflect.FullName]bool{
	"falcon.v1.Comm.name":          true,
	"falcon.v1.RankState.device":   true,
	"falcon.v1.RankState.nic":      true,
	"falcon.v1.RankState.mesh":     true,
	"falcon.v1.Hello.agent":        true,
	"falcon.v1.Hello.node":         true,
	"falcon.v1.Hello.boot":         true,
	"falcon.v1.Hello.version":      true,
	"falcon.v1.Hello.job":          true,
	"falcon.v1.Hello.devices":      true,
	"falcon.v1.Hello.sysfs":        true,
	"falcon.v1.DeviceEvent.device": true,
	"falcon.v1.Gpu.device":         true,
	"falcon.v1.Nic.name":           true,
}

// shape is what the scale needs to know of a message type.
type shape struct {
	fields [fieldsMost]*fieldShape // by number
}

// fieldsMost is above the largest field number of an agent's messages.
const fieldsMost = 64

type fieldShape struct {
	list  bool
	most  int    // entries of a list
	bytes int    // of one string; 0 = not bounded
	sub   *shape // of a message; nil otherwise
}

var frameShape = shapeOf((&falconv1.AgentFrame{}).ProtoReflect().Descriptor())

func shapeOf(d protoreflect.MessageDescriptor) *shape {
	s := &shape{}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		s.fields[f.Number()] = fieldShapeOf(f)
	}
	return s
}

func fieldShapeOf(f protoreflect.FieldDescriptor) *fieldShape {
	out := &fieldShape{list: f.Cardinality() == protoreflect.Repeated, most: listMost}
	if n, ok := lists[f.FullName()]; ok {
		out.most = n
	}
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		out.bytes = stringMost
		if names[f.FullName()] {
			out.bytes = nameMost
		}
	case protoreflect.MessageKind:
		out.sub = shapeOf(f.Message())
	default:
	}
	return out
}

// within reports whether an encoded AgentFrame keeps the bounds. Bytes that are
// no message count as within: decoding them gives the error.
func within(frame []byte) bool {
	left := elementsMost
	return frameShape.within(frame, &left)
}

func (s *shape) within(b []byte, left *int) bool {
	var counts [fieldsMost]int
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return true
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, kind, b)
		if size < 0 {
			return true
		}
		if number < fieldsMost &&
			s.fields[number] != nil &&
			!s.fields[number].takes(kind, b[:size], &counts[number], left) {
			return false
		}
		b = b[size:]
	}
	return true
}

// takes counts one occurrence of a field.
func (f *fieldShape) takes(kind protowire.Type, b []byte, count, left *int) bool {
	n := 1
	var body []byte
	if kind == protowire.BytesType {
		body, _ = protowire.ConsumeBytes(b)
		if f.sub == nil && f.bytes == 0 { // packed numbers
			n = len(body)
		}
	}
	if f.list || f.sub != nil {
		*count += n
		*left -= n
	}
	switch {
	case f.list && *count > f.most, *left < 0, f.bytes > 0 && len(body) > f.bytes:
		return false
	case f.sub != nil && !f.list && *count > 1: // decoding would join their lists
		return false
	case f.sub != nil && kind == protowire.BytesType:
		return f.sub.within(body, left)
	}
	return true
}

// head finds a frame's number and the number of its body field (0 = none) without
// decoding the rest; the last ones count, as in decoding.
func head(frame []byte) (seq uint64, body protowire.Number) {
	for b := frame; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return seq, body
		}
		b = b[n:]
		switch {
		case number == 1 && kind == protowire.VarintType:
			seq, _ = protowire.ConsumeVarint(b)
		case number > 1:
			body = number
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return seq, body
		}
		b = b[n:]
	}
	return seq, body
}
