package plain

import (
	"bufio"
	"context"
	"io"
	"sync"
	"time"

	"github.com/failslow/falcon/tui/phrase"
)

// lineMax bounds one typed line; a longer one ends the input.
const lineMax = 4 << 10

// readLines sends typed lines until in ends or ctx does, and closes the channel. It
// can't leave a Read that blocks: its owner closes in, or the process ends.
func readLines(ctx context.Context, in io.Reader) <-chan string {
	out := make(chan string)
	go func() {
		defer close(out)
		s := bufio.NewScanner(in)
		s.Buffer(make([]byte, 0, 256), lineMax)
		for s.Scan() {
			select {
			case out <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// answer is what came of a request.
type answer struct {
	text string
	err  error
	own  bool // of the open question, not of a freeze
}

// desk takes decisions: the asker, what is typed, and the calls under way.
type desk struct {
	ask     *asker
	feed    Source
	typed   <-chan string // nil = nothing can be typed
	answers chan answer
	calls   sync.WaitGroup
	quit    bool
	reader  *reader // nil = lines for the eye
}

func newDesk(ctx context.Context, f Source, in io.Reader) *desk {
	d := &desk{
		ask:     newAsker(),
		feed:    f,
		answers: make(chan answer, 2),
	}
	if in == nil {
		d.ask.closed = true
		return d
	}
	d.typed = readLines(ctx, in)
	return d
}

// takeLine handles a typed line, or the end of what can be typed: from then on
// nothing is asked, and an open question is dropped.
func (d *desk) takeLine(ctx context.Context, text string, ok bool, now time.Time) []string {
	if !ok {
		d.typed, d.ask.closed = nil, true
		return d.ask.withdraw(d.feed.Latest())
	}
	// The engine's newest state counts, not that of the printed question.
	s := d.feed.Latest()
	out := d.ask.state(s, now)
	if d.reader != nil {
		if lines, ok := d.reader.word(text, d.ask, s, now); ok {
			return append(out, lines...)
		}
	}
	more, r := d.ask.line(text, s, now)
	out = append(out, more...)
	if r == nil {
		return out
	}
	if r.quit {
		d.quit = true
		return out
	}
	d.calls.Go(func() { // ends within the feed's time limit of a call
		got := d.sendRequest(ctx, r)
		select {
		case d.answers <- got:
		case <-ctx.Done():
		}
	})
	return append(out, "sent, waiting for the engine")
}

// sendRequest submits a request; it runs beside the stream.
func (d *desk) sendRequest(ctx context.Context, r *request) answer {
	switch {
	case r.freeze:
		p, err := d.feed.Freeze(ctx)
		return answer{text: "mode is " + phrase.Mode(p), err: err}
	case r.Recover != nil:
		v, err := d.feed.Recover(ctx, r.Recover)
		return answer{
			text: r.Recover.Recovery + ": " + r.Recover.Verb + " taken, it is " + v.GetState(),
			err:  err,
			own:  true,
		}
	}
	a, err := d.feed.Decide(ctx, r.Decide)
	return answer{
		text: r.Decide.Action + " is " + a.GetState() + ", decided by " + a.GetDecidedBy(),
		err:  err,
		own:  true,
	}
}

// answered prints what came of a request, and asks again where it failed.
func (d *desk) answered(got answer, now time.Time) []string {
	out := d.ask.answered(got)
	return append(out, d.ask.state(d.feed.Latest(), now)...)
}
