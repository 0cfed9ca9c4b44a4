package rpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// The engine's time does not follow a step of the machine's wall clock. What people are
// shown does: here, and nowhere else, times of replies are moved by the difference, and
// times of requests back. Durations, which are differences of such times, stay.

// wallTime moves times between the engine's and the wall clock's.
type wallTime struct {
	offset func() time.Duration // wall clock minus the engine's time
}

var consoleMethods = "/" + falconv1.Console_ServiceDesc.ServiceName + "/"

func (w wallTime) unary(
	ctx context.Context,
	req any,
	info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler,
) (any, error) {
	by := w.offset()
	if by == 0 || !strings.HasPrefix(info.FullMethod, consoleMethods) {
		return next(ctx, req)
	}
	if m, ok := req.(proto.Message); ok {
		moveTimes(m.ProtoReflect(), -by)
	}
	reply, err := next(ctx, req)
	return moved(reply, by), err
}

func (w wallTime) stream(
	srv any,
	ss grpc.ServerStream,
	info *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	if strings.HasPrefix(info.FullMethod, consoleMethods) {
		ss = wallStream{ss, w}
	}
	return next(srv, ss)
}

// wallStream moves the times of a stream's messages.
type wallStream struct {
	grpc.ServerStream
	wallTime
}

func (s wallStream) SendMsg(m any) error {
	return s.ServerStream.SendMsg(moved(m, s.offset()))
}

// moved is a message with its times moved; the message itself may be shared and stays.
func moved(in any, by time.Duration) any {
	m, ok := in.(proto.Message)
	if !ok || by == 0 || !m.ProtoReflect().IsValid() {
		return in
	}
	out := proto.Clone(m)
	moveTimes(out.ProtoReflect(), by)
	return out
}

// timeSuffix ends the name of every field that holds a point of time.
const timeSuffix = "unix_ns"

// moveTimes moves all points of time of a message. 0 means that there is none.
func moveTimes(m protoreflect.Message, by time.Duration) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, item protoreflect.Value) bool {
					moveTimes(item.Message(), by)
					return true
				})
			}
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				moveTimes(v.List().Get(i).Message(), by)
			}
		case f.Message() != nil:
			moveTimes(v.Message(), by)
		case f.Kind() == protoreflect.Int64Kind &&
			!f.IsList() &&
			strings.HasSuffix(string(f.Name()), timeSuffix):
			m.Set(f, protoreflect.ValueOfInt64(v.Int()+int64(by)))
		}
		return true
	})
}
