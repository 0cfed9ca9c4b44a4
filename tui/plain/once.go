package plain

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
)

// Once writes the state now and ends: as lines, or as one JSON document with
// the fields of the API's SnapshotReply in their proto names.
func Once(ctx context.Context, client falconv1.ConsoleClient, out io.Writer, asJSON bool) error {
	ctx, cancel := context.WithTimeout(ctx, feed.CallTimeout)
	defer cancel()
	r, err := client.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: feed.WorstRank})
	if err != nil {
		return fmt.Errorf("%w (%s)", ErrNoEngine, feed.Reason(err))
	}
	clean.Message(r)
	if asJSON {
		b, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", b)
		return err
	}
	w := &writer{out: out}
	w.lines(Present(r)...)
	return w.err
}

// Present is how things are, as lines.
func Present(r *falconv1.SnapshotReply) []string {
	now := &feed.State{Snap: r, Conn: feed.Live}
	d := newDiff()
	d.conn = feed.Live
	var out []string
	at := stamp(r.GetJob())
	for _, l := range d.jobLines(r) {
		out = append(out, at+l)
	}
	for _, i := range now.Snap.Incidents {
		out = append(out, at+d.incident(i))
	}
	for _, a := range r.GetLadder().GetActions() {
		out = append(out, at+d.action(a))
	}
	return out
}
