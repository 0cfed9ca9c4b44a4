package fleet

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Shed are the kinds of frames that an engine short of memory leaves out, in
// the order that it does so.
type Shed int

// What is left out; each includes the ones before it.
const (
	ShedNothing Shed = iota
	ShedProfiles
	ShedTelemetry
	ShedSamples
)

// requestBytesMax bounds what is no frame, such as a request for a certificate.
const requestBytesMax = 64 << 10

var (
	errRequestSize = errors.New("fleet: the request is larger than 64 KiB")
	errDecode      = errors.New("fleet: the message can't be decoded")
)

// Codec decodes what agents send, within bounds. A frame beyond them becomes one
// with its number and no body, and a frame of a kind that is being left out one
// with an empty body: both are acknowledged, so that the agent does not send
// them again for ever, and have no other consequence.
type Codec struct {
	encoding.CodecV2
	shed func() Shed
}

// NewCodec makes a codec; shed says what to leave out now, nil = nothing.
func NewCodec(shed func() Shed) *Codec {
	if shed == nil {
		shed = func() Shed { return ShedNothing }
	}
	return &Codec{CodecV2: encoding.GetCodecV2(grpcproto.Name), shed: shed}
}

// Unmarshal decodes one message. A panic in a decoder ends the call alone.
func (c *Codec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDecode, r)
		}
	}()
	f, ok := v.(*falconv1.AgentFrame)
	if !ok {
		if data.Len() > requestBytesMax {
			return errRequestSize
		}
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return decodeFrame(buf.ReadOnlyData(), f, c.shed())
}

var decoding = proto.UnmarshalOptions{DiscardUnknown: true}

func decodeFrame(b []byte, f *falconv1.AgentFrame, shed Shed) error {
	seq, body := head(b)
	if !within(b) {
		proto.Reset(f)
		f.Seq = seq
		f.ProtoReflect().SetUnknown(refusedMark)
		return nil
	}
	if empty := leftOut(body, shed); empty != nil {
		proto.Reset(f)
		f.Seq, f.Body = seq, empty.Body
		return nil
	}
	return decoding.Unmarshal(b, f)
}

// refusedMark is an unknown field that tells a refused frame from one whose
// body a newer agent knows and this engine does not: decoding leaves no unknown
// field.
var refusedMark = protowire.AppendVarint(protowire.AppendTag(nil, 15_000, protowire.VarintType), 1)

func refused(f *falconv1.AgentFrame) bool {
	return len(f.ProtoReflect().GetUnknown()) > 0
}

// Numbers of the bodies that can be left out.
const (
	bodySamples   protowire.Number = 4
	bodyProfile   protowire.Number = 5
	bodyTelemetry protowire.Number = 6
)

// leftOut is what stands for a body that is left out; nil = it is not.
func leftOut(n protowire.Number, shed Shed) *falconv1.AgentFrame {
	switch {
	case n == bodyProfile && shed >= ShedProfiles:
		return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Profile{Profile: &falconv1.Profile{}}}
	case n == bodyTelemetry && shed >= ShedTelemetry:
		return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Telemetry{Telemetry: &falconv1.Telemetry{}}}
	case n == bodySamples && shed >= ShedSamples:
		return &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Samples{Samples: &falconv1.Samples{}}}
	}
	return nil
}
