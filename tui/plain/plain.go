// Package plain is the console for places without a screen: append-only lines
// in plain English, no cursor movement, one line a change and a summary now
// and then; decisions by numbered questions on typed lines.
//
// It guarantees what the screen's dialogs do: a decision carries the plan hash
// and the job epoch that were printed, takes two answers given after the
// question was seen, and is withdrawn when the engine's picture changes; input
// that ends decides nothing.
//
// Run owns its feed and everything that it starts; it returns when the job
// has finished or its context ends, after printing what happened in every
// incident and recovery. It writes nothing but printable text and newlines.
package plain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/remedy"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/link"
)

// ErrNoEngine is returned when no engine answered in Options.Patience.
var ErrNoEngine = errors.New("plain: no engine answered")

// Defaults of Options.
const (
	SummaryPeriod = 30 * time.Second
	Patience      = 30 * time.Second
)

// incidentsTimeout bounds the last question for incidents.
const incidentsTimeout = 3 * time.Second

// Options shape the stream.
type Options struct {
	Now      func() time.Time // nil = the real clock
	Summary  time.Duration    // between summaries; 0 = SummaryPeriod
	Patience time.Duration    // until the first answer; 0 = Patience
	In       io.Reader        // typed lines, for decisions; nil = none can be given
	Open     *link.Target     // an incident or a recovery to print first; nil = none
	Source   Source           // where states come from; nil = a feed of Run's own
	// for a screen reader: words for signs, sentences for tables, no summaries unasked
	Reader bool
}

// Source is what the stream needs of a feed; it stays its owner's to close.
type Source interface {
	Latest() *feed.State
	Changed() <-chan struct{}
	Decide(context.Context, *falconv1.DecideRequest) (*falconv1.Action, error)
	Recover(context.Context, *falconv1.RecoverRequest) (*falconv1.Recovery, error)
	Freeze(context.Context) (*falconv1.Policy, error)
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Summary = cmp.Or(o.Summary, SummaryPeriod)
	o.Patience = cmp.Or(o.Patience, Patience)
	return o
}

// Run writes the job's stream to out until the job has finished, ctx ends or
// the operator leaves, then what happened in each incident. Decisions that the caller's
// role may give are asked for by numbers on Options.In; nothing is ever
// approved by its end. Ending by ctx is no error; a failed write is.
func Run(ctx context.Context, client falconv1.ConsoleClient, out io.Writer, opts Options) error {
	opts = opts.withDefaults()
	f := opts.Source
	if f == nil {
		own := feed.New(client, opts.Now)
		defer own.Close()
		f = own
	}
	w := &writer{out: out, spoken: opts.Reader}
	if opts.Open != nil {
		lines, err := linkedLines(ctx, client, *opts.Open)
		if err != nil { // lines go on without it
			lines = []string{err.Error()}
		}
		w.printLines(lines...)
	}
	callCtx, cancel := context.WithCancel(ctx)
	d := newDesk(callCtx, f, opts.In)
	if opts.Reader {
		d.reader = newReader()
		w.printLines("Falcon for a screen reader. Type help and press enter for what can be typed.")
	}
	err := followFeed(ctx, d, w, opts)
	cancel()
	d.calls.Wait()
	if err != nil {
		return err
	}
	writeIncidents(ctx, client, f.Latest(), w)
	return w.err
}

// noEngine is ErrNoEngine with what is known of why, and what to do.
func noEngine(why string) error {
	if hint := remedy.Of(why); hint != "" {
		return fmt.Errorf("%w (%s): %s", ErrNoEngine, why, hint)
	}
	return fmt.Errorf("%w (%s): is it started, and is this where it listens?", ErrNoEngine, why)
}

// followFeed writes changes, questions and summaries until the job has finished,
// the operator leaves, ctx ends or a write fails.
func followFeed(ctx context.Context, d *desk, w *writer, opts Options) error {
	summary := time.NewTicker(opts.Summary)
	defer summary.Stop()
	patience := time.NewTimer(opts.Patience)
	defer patience.Stop()
	f, changes := d.feed, newDiff()
	changes.reader = d.reader
	for w.err == nil && !d.quit {
		select {
		case <-ctx.Done():
			return nil
		case <-patience.C:
			if f.Latest().Received.IsZero() {
				return noEngine(f.Latest().Err)
			}
		case <-summary.C:
			if d.reader == nil {
				w.printLines(Summary(f.Latest(), opts.Now()))
			}
		case text, ok := <-d.typed:
			w.printLines(d.takeLine(ctx, text, ok, opts.Now())...)
		case got := <-d.answers:
			w.printLines(d.answered(got, opts.Now())...)
		case <-f.Changed():
			s := f.Latest()
			w.printLines(d.reader.bound(changes.linesOf(s))...)
			w.printLines(d.ask.state(s, opts.Now())...)
			if s.Snap.GetJob().GetState() == string(falcon.JobFinished) {
				return nil
			}
		}
	}
	return w.err
}

// writeIncidents asks for all incidents once more, as the snapshot holds one ladder
// only; without an answer it prints what the last snapshot held.
func writeIncidents(ctx context.Context, client falconv1.ConsoleClient, last *feed.State, w *writer) {
	if last.Received.IsZero() {
		return
	}
	// The stream may have ended because ctx did; the incidents are still printed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), incidentsTimeout)
	defer cancel()
	r, err := client.Incidents(ctx, &falconv1.IncidentsRequest{})
	if err != nil {
		r = &falconv1.IncidentsReply{
			Incidents: last.Snap.Incidents,
			Ladders:   []*falconv1.Ladder{last.Snap.Ladder},
		}
	} else {
		clean.Message(r)
	}
	w.printLines(IncidentLines(r)...)
	list, err := client.Recoveries(ctx, &falconv1.RecoveriesRequest{})
	if err == nil {
		clean.Message(list)
		w.printLines(Recoveries(list.Recoveries)...)
	} else if v := last.Snap.GetRecovery(); v != nil {
		w.printLines(Recoveries([]*falconv1.Recovery{v})...)
	}
}

// writer stops at the first failed write.
type writer struct {
	out    io.Writer
	err    error
	spoken bool // for a screen reader
}

func (w *writer) printLines(lines ...string) {
	for _, l := range lines {
		if w.spoken {
			l = Spoken(l)
		}
		if w.err == nil && l != "" {
			_, w.err = fmt.Fprintln(w.out, l)
		}
	}
}
