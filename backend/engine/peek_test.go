package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// peekAs has something read while agents answer.
func (b *bench) peekAs(
	who Actor,
	mayStack bool,
	q *falconv1.PeekRequest,
) (out *falconv1.PeekReply, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err = Peek(context.Background(), b.engine, who, mayStack, q)
	}()
	for range 200 {
		select {
		case <-done:
			return out, err
		default:
			b.turn()
		}
	}
	b.t.Fatal("no answer")
	return nil, nil
}

// peekBench is a job whose agents answer with what answer returns; nil = not at all.
func peekBench(t *testing.T, protocol uint32, answer func(*falconv1.Peek) *falconv1.Peeked) *bench {
	b := newBench(t)
	for _, a := range b.job.agents {
		a.protocol, a.peeks = protocol, answer
	}
	b.start()
	b.turn()
	b.turn()
	return b
}

// What a rank has printed comes from its node, bounded and clean; who asked is durable
// before the agent is asked, and the text is written down nowhere.
func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked *falconv1.Peek
		audited := ""
		var b *bench
		b = peekBench(t, falconv1.PeekRevision, func(q *falconv1.Peek) *falconv1.Peeked {
			asked = q
			audited = b.triageAudit()
			lines := []string{"bad\x1b[2J news\x07", strings.Repeat("x", 5000)}
			for range 400 {
				lines = append(lines, "l")
			}
			return &falconv1.Peeked{Parts: []*falconv1.PeekPart{{
				Source: "stderr",
				Path:   "/logs/1",
				Lines:  lines,
				Bytes:  -1,
			}}}
		})
		got, err := b.peekAs(dana, false, &falconv1.PeekRequest{
			What:  "log",
			Rank:  1,
			Lines: 1 << 30,
		})
		if err != nil {
			t.Fatal(err)
		}
		p := got.GetParts()[0]
		if asked.GetRank() != 1 ||
			asked.GetLines() != peekLines ||
			got.GetNode() == "" ||
			!strings.Contains(got.GetState(), "runs") {
			t.Errorf("asked %v, got node %q, state %q", asked, got.GetNode(), got.GetState())
		}
		if len(p.Lines) != peekLines ||
			p.Lines[0] != "bad[2J news" ||
			len(p.Lines[1]) != peekLineMost ||
			p.Bytes != 0 {
			t.Errorf("%d lines, the first %q", len(p.Lines), p.Lines[0])
		}
		if audited != "peek rank 1: log" {
			t.Errorf("when the agent was asked the audit said %q", audited)
		}
		if err := b.halt(); err != nil {
			t.Fatal(err)
		}
		for _, list := range b.records() {
			for _, r := range list {
				if strings.Contains(string(r.Body), "news") {
					t.Errorf("the text is in the journal: %s", r.Body)
				}
			}
		}
	})
}

// Every reason for no answer is one sentence, and comes in time.
func TestPeekRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := peekBench(t, falconv1.PeekRevision, func(*falconv1.Peek) *falconv1.Peeked { return nil })
		log := &falconv1.PeekRequest{What: "log", Rank: 1}
		refuses := func(who Actor, q *falconv1.PeekRequest, want error, words string) {
			t.Helper()
			_, err := b.peekAs(who, false, q)
			if !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
				t.Errorf("%v: %v, want %v with %q", q, err, want, words)
			}
		}
		began := time.Now()
		refuses(dana, log, ErrRefused, "has not answered within 4s")
		if took := time.Since(began); took > 2*peekWithin {
			t.Errorf("took %s", took)
		}
		refuses(dana, &falconv1.PeekRequest{What: "log", Rank: 99}, ErrNotFound, "no agent knows a rank 99")
		refuses(
			dana,
			&falconv1.PeekRequest{What: "log", Rank: 1, Node: "n9"},
			ErrRefused,
			"no agent of node n9",
		)
		refuses(dana, &falconv1.PeekRequest{What: "kernel", Node: "n\x1b9"}, ErrNotFound, `"n9"`)
		refuses(dana, &falconv1.PeekRequest{What: "secrets"}, ErrInvalid, "neither")
		refuses(dana, &falconv1.PeekRequest{What: "stack", Rank: 1}, ErrDenied, "role approver")
		for _, a := range b.job.agents {
			a.peeks = func(*falconv1.Peek) *falconv1.Peeked {
				return &falconv1.Peeked{Refused: "it is\nswitched off"}
			}
		}
		refuses(dana, log, ErrRefused, "it isswitched off")
		eve := Actor{Name: "eve", Role: "operator"}
		for range peeksBurst {
			_, _ = b.peekAs(eve, false, log)
		}
		var busy error
		for range peeksBurst {
			if _, err := b.peekAs(eve, false, log); errors.Is(err, ErrBusy) {
				busy = err
			}
		}
		if busy == nil {
			t.Error("one person may ask without end")
		}
		for _, a := range b.job.agents {
			a.leave()
		}
		b.turn()
		refuses(dana, log, ErrRefused, "is away, last heard")
		b.inLoop(func() {
			if n := len(b.engine.peeks.waiting); n != 0 {
				t.Errorf("%d requests wait although no person does", n)
			}
		})
	})
}

func TestPeekOldAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := peekBench(t, falconv1.PeekRevision-1, func(*falconv1.Peek) *falconv1.Peeked {
			t.Error("an agent was asked that does not know how to answer")
			return nil
		})
		_, err := b.peekAs(dana, true, &falconv1.PeekRequest{
			What: "stack",
			Rank: 0,
		})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "too old for this") {
			t.Error(err)
		}
	})
}

// An answer that no person waits for, of another node, or twice, has no effect.
func TestPeekStrayAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := peekBench(t, falconv1.PeekRevision, nil)
		liar := b.job.agents[len(b.job.agents)-1]
		for _, a := range b.job.agents {
			a.peeks = func(q *falconv1.Peek) *falconv1.Peeked {
				liar.send(&falconv1.AgentFrame{
					Body: &falconv1.AgentFrame_Peeked{
						Peeked: &falconv1.Peeked{Peek: q.GetId(), Refused: "a lie"},
					},
				})
				liar.send(&falconv1.AgentFrame{
					Body: &falconv1.AgentFrame_Peeked{Peeked: &falconv1.Peeked{Peek: q.GetId() + 1}},
				})
				return &falconv1.Peeked{Parts: []*falconv1.PeekPart{{Source: "stdout"}}}
			}
		}
		got, err := b.peekAs(dana, false, &falconv1.PeekRequest{
			What: "log",
			Rank: 0,
		})
		if err != nil || len(got.GetParts()) != 1 {
			t.Errorf("%v %v", got, err)
		}
	})
}
