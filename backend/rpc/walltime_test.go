package rpc

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Replies are moved and what they share stays; requests are moved back; agents' calls
// are not touched, nor is anything while no clock has stepped.
func TestTimesFollowTheWallClockWhereTheyAreShown(t *testing.T) {
	const at = 1_700_000_000_000_000_000
	shared := &falconv1.Incident{Id: "INC-0001", OnsetUnixNs: at}
	reply := &falconv1.SnapshotReply{
		AtUnixNs:  at + 5e9,
		Incidents: []*falconv1.Incident{shared},
	}
	by := -30 * time.Second
	w := wallTime{offset: func() time.Duration { return by }}
	call := func(method string, q proto.Message) (*falconv1.SnapshotReply, proto.Message) {
		var got proto.Message
		out, err := w.unary(
			context.Background(),
			q,
			&grpc.UnaryServerInfo{FullMethod: method},
			func(_ context.Context, req any) (any, error) {
				got = req.(proto.Message)
				return reply, nil
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		return out.(*falconv1.SnapshotReply), got
	}
	out, q := call("/falcon.v1.Console/Snapshot", &falconv1.HistoryRequest{SinceUnixNs: at})
	if out.AtUnixNs != at+5e9-30e9 || out.Incidents[0].OnsetUnixNs != at-30e9 {
		t.Errorf("the reply has %d and %d", out.AtUnixNs, out.Incidents[0].OnsetUnixNs)
	}
	if reply.AtUnixNs != at+5e9 || shared.OnsetUnixNs != at {
		t.Error("what is shared was changed")
	}
	if got := q.(*falconv1.HistoryRequest).SinceUnixNs; got != at+30e9 {
		t.Errorf("the request has %d", got)
	}
	if out, _ := call("/falcon.v1.Fleet/Renew", &falconv1.RenewRequest{}); out != reply {
		t.Error("an agent's reply was copied")
	}
	by = 0
	if out, _ := call("/falcon.v1.Console/Snapshot", &falconv1.HistoryRequest{
		SinceUnixNs: at,
	}); out != reply {
		t.Error("a reply was copied without need")
	}
}

// Every 64-bit field of the API that is named for a time is one: a new one that is named
// otherwise would be shown as it is.
func TestEveryTimeIsNamedSo(t *testing.T) {
	var walk func(messages protoreflect.MessageDescriptors)
	times := 0
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			fields := messages.Get(i).Fields()
			for k := range fields.Len() {
				name := string(fields.Get(k).Name())
				isTime := strings.HasSuffix(name, timeSuffix)
				if isTime &&
					(fields.Get(k).Kind() != protoreflect.Int64Kind || fields.Get(k).IsList()) {
					t.Errorf("%s is not one int64", fields.Get(k).FullName())
				}
				if !isTime &&
					(strings.Contains(name, "unix") ||
						strings.HasSuffix(name, "_at") ||
						strings.HasSuffix(name, "time_ns")) {
					t.Errorf("%s holds a time and is not moved", fields.Get(k).FullName())
				}
				if isTime {
					times++
				}
			}
			walk(messages.Get(i).Messages())
		}
	}
	walk(falconv1.File_falcon_v1_falcon_proto.Messages())
	if times < 40 {
		t.Errorf("only %d times were found", times)
	}
}
