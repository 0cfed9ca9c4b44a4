package plain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/phrase"
)

// Once writes the state now and ends: as lines, or as one JSON document with
// the fields of the API's SnapshotReply in their proto names. With a place,
// the lines are of that incident or recovery instead.
func Once(
	ctx context.Context,
	client falconv1.ConsoleClient,
	out io.Writer,
	asJSON bool,
	at *link.Target,
) error {
	ctx, cancel := context.WithTimeout(ctx, feed.CallTimeout)
	defer cancel()
	r, err := client.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: feed.WorstRank})
	if err != nil {
		return noEngine(feed.Reason(err))
	}
	clean.Message(r)
	if asJSON {
		r.Statements = statementsOf(r)
		b, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(r)
		if err != nil {
			return err
		}
		var doc bytes.Buffer // the library varies its blanks on purpose
		if err := json.Compact(&doc, b); err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, doc.String())
		return err
	}
	w := &writer{out: out}
	if here := r.GetJob().GetName(); at != nil && at.Job != "" && at.Job != here {
		return fmt.Errorf("the link is to job %s, and this engine's is %s", at.Job, here)
	}
	if at != nil {
		switch lines, err := linkedLines(ctx, client, *at); {
		case err != nil:
			return err
		case lines != nil:
			w.printLines(lines...)
			return w.err
		}
	}
	w.printLines(Present(r)...)
	return w.err
}

// statementsOf is what is said first, for programs.
func statementsOf(r *falconv1.SnapshotReply) []*falconv1.Statement {
	at := time.Unix(0, r.GetAtUnixNs())
	var out []*falconv1.Statement
	for _, x := range statements.Of(statements.Picture{Snap: r, Now: at}) {
		s := &falconv1.Statement{
			Kind:     string(x.Kind),
			Severity: x.Severity.String(),
			Incident: x.IncidentID(),
			Action:   x.Action.GetId(),
			Recovery: x.Recovery.GetId(),
			Ranks:    x.Ranks,
			Who:      string(x.Who),
			Text:     phrase.Statement(&x, at),
		}
		if !x.Since.IsZero() {
			s.SinceUnixNs = x.Since.UnixNano()
		}
		if !x.Until.IsZero() {
			s.UntilUnixNs = x.Until.UnixNano()
		}
		out = append(out, s)
	}
	return out
}

// linkedLines returns the lines about what a link points at; nil where it is no incident
// and no recovery: lines have no other places.
func linkedLines(ctx context.Context, client falconv1.ConsoleClient, to link.Target) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, feed.CallTimeout)
	defer cancel()
	switch to.Kind {
	case link.Incident:
		r, err := client.Incidents(ctx, &falconv1.IncidentsRequest{Id: to.ID})
		if err != nil {
			return nil, fmt.Errorf("%s can't be shown: %s", to.ID, sentence(err))
		}
		clean.Message(r)
		return IncidentLines(r), nil
	case link.Recovery:
		r, err := client.Recoveries(ctx, &falconv1.RecoveriesRequest{Id: to.ID})
		if err != nil {
			return nil, fmt.Errorf("%s can't be shown: %s", to.ID, sentence(err))
		}
		clean.Message(r)
		return Recoveries(r.Recoveries), nil
	case link.Page, link.Rank, link.Link:
	}
	return nil, nil
}

// Present is how things are, as lines.
func Present(r *falconv1.SnapshotReply) []string {
	now := &feed.State{Snap: r, Conn: feed.Live}
	d := newDiff()
	d.conn = feed.Live
	var out []string
	at := jobStamp(r.GetJob())
	for _, l := range d.jobLines(r) {
		out = append(out, at+l)
	}
	for _, l := range said(now, time.Time{}) {
		out = append(out, at+l)
	}
	for _, l := range holdingLines(r) {
		out = append(out, at+l)
	}
	for _, i := range now.Snap.Incidents {
		out = append(out, at+d.incident(i))
	}
	for _, a := range r.GetLadder().GetActions() {
		out = append(out, at+d.actionLine(a))
	}
	return out
}

// sentence is the engine's sentence, without the prefix that is for programs.
func sentence(err error) string {
	return strings.TrimPrefix(feed.Reason(err), "engine: not found: ")
}
