package engine

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
)

// tells has the job's agents say what orders they have had, as those of now do.
func tells(b *bench) {
	for _, a := range b.job.agents {
		a.protocol = falconv1.StandingRevision
	}
}

// filesOf is a journal's folder, by name.
func filesOf(t *testing.T, path string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if out[e.Name()], err = os.ReadFile(filepath.Join(filepath.Dir(path), e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// putFiles has a journal's folder hold these and nothing else.
func putFiles(t *testing.T, path string, files map[string][]byte) {
	t.Helper()
	for name := range filesOf(t, path) {
		if err := os.Remove(filepath.Join(filepath.Dir(path), name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What acts on the job is refused while the engine hears its nodes, and what names nothing that
// there is says so.
func TestNothingIsOrderedWhileTheNodesAreHeard(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.start()
		ctx := context.Background()
		for name, c := range map[string]struct {
			ask  func() error
			want error
		}{
			"an action": {
				b.decide(&falconv1.DecideRequest{Incident: "INC-0001", Action: "ACT-0001"}),
				ErrRefused,
			},
			"a fence": {
				b.recoverBy(&falconv1.RecoverRequest{Verb: verbFence, Node: "n0", Reason: "smoke"}),
				ErrRefused,
			},
			"no inc.": {b.decide(&falconv1.DecideRequest{Incident: "INC-0001"}), ErrNotFound},
			"no rec.": {
				b.recoverBy(&falconv1.RecoverRequest{Verb: "approve", Recovery: "REC-0009"}),
				ErrNotFound,
			},
			"validation": {func() error {
				_, err := b.engine.Validate(ctx, tester, &falconv1.ValidateRequest{Gemm: true})
				return err
			}, ErrRefused},
		} {
			if err := c.ask(); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
	})
}

func (b *bench) decide(q *falconv1.DecideRequest) func() error {
	return func() error {
		_, err := b.engine.Decide(context.Background(), tester, q)
		return err
	}
}

func (b *bench) recoverBy(q *falconv1.RecoverRequest) func() error {
	return func() error {
		_, err := b.engine.Recover(context.Background(), tester, q)
		return err
	}
}

// killRank ends a rank's process wherever it is, once the job has come to an iteration.
func killRank(b *bench, at int64, rank int32) func() {
	done := false
	return func() {
		if done || b.job.iteration < at {
			return
		}
		done = true
		for _, a := range b.job.agents {
			if slices.Contains(a.ranks, rank) {
				a.crash(rank, b.job, "killed by signal 9")
			}
		}
	}
}

// pastTo plays a job through recoveries of rank 2 and of node n1, and returns the journal's files as
// they were at the beginning.
func pastTo(t *testing.T, b *bench) map[string][]byte {
	t.Helper()
	recoverBench(b)
	tells(b)
	b.playTo(10)
	if b.engine == nil {
		t.Fatal("no engine")
	}
	if err := b.halt(); err != nil {
		t.Fatal(err)
	}
	early := filesOf(t, b.path)
	first, second := killRank(b, 20, 2), killRank(b, 40, 1)
	b.each = func(*bench) {
		first()
		second()
	}
	b.playTo(60)
	got := b.recoveries()
	if len(got) != 2 || got[1].State != falcon.RecoveryResumed {
		t.Fatalf("recoveries %+v", got)
	}
	if err := b.halt(); err != nil {
		t.Fatal(err)
	}
	b.each = nil
	return early
}

// An engine whose journal is older than its nodes, or empty, goes above what they have seen: the
// next death ends one rank and not the job.
func TestAnOlderJournalLearns(t *testing.T) {
	for _, c := range []struct {
		name  string
		files func(early map[string][]byte) map[string][]byte
	}{
		{"rolled back", func(early map[string][]byte) map[string][]byte { return early }},
		{"empty", func(map[string][]byte) map[string][]byte { return nil }},
	} {
		for _, dead := range []string{"after", "before"} { // the engine has started
			t.Run(c.name+"/"+dead, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					b.policy = falcon.Policy{
						Mode:  falcon.ModeAuto,
						Cap:   falcon.RungS4,
						Owner: "test",
					}
					early := pastTo(t, b)
					putFiles(t, b.path, c.files(early))
					kill := killRank(b, 70, 3)
					if dead == "before" {
						kill = killRank(b, 0, 3)
						kill()
					}
					b.each = func(*bench) { kill() }
					b.playTo(100)
					list := b.recoveries()
					v := list[len(list)-1]
					if v.State != falcon.RecoveryResumed ||
						v.Generation < 3 ||
						v.Whole ||
						!slices.Contains(slices.Collect(maps.Keys(v.Replaced)), 3) {
						t.Errorf("recoveries %+v", list)
					}
					if text := strings.Join(
						b.eventTexts(),
						"\n",
					); !strings.Contains(text, "the journal is older than the nodes") {
						t.Errorf("no line about the journal:\n%s", text)
					}
					if text := strings.Join(
						b.eventTexts(),
						"\n",
					); strings.Contains(text, "the clock of node") {
						t.Errorf("beats that waited are compared with another time:\n%s", text)
					}
					b.onceEach()
				})
			})
		}
	}
}

func (b *bench) eventTexts() (out []string) {
	b.inLoop(func() {
		for _, l := range b.engine.state.events {
			out = append(out, l.GetText())
		}
	})
	return out
}

// Of two engines on copies of one journal, the one that the nodes have left ends with a sentence, and
// the other is not touched.
func TestTheEngineThatIsLeftEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		early := pastTo(t, b)
		b.playTo(70)
		older, streams, ended := b.engine, b.streams, b.ended
		for _, a := range b.job.agents {
			a.stream.cancel()
		}
		time.Sleep(time.Second)
		b.path = filepath.Join(t.TempDir(), "journal.db")
		putFiles(t, b.path, early)
		stopOlder, closeOlder := b.stop, b.journal
		defer func() {
			stopOlder()
			streams.Close()
			if err := closeOlder.Close(); err != nil {
				t.Error(err)
			}
		}()
		b.playTo(200) // for longer than it hears its nodes, as its journal is older than they are
		second := b.engine.ID()
		for _, a := range b.job.agents { // an address that leads back
			a.stream.cancel()
			b.attachTo(a, streams)
		}
		select {
		case err := <-ended:
			if !errors.Is(err, ErrSuperseded) || !strings.Contains(err.Error(), second) {
				t.Errorf("the engine that was left ends with %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the engine that was left goes on")
		}
		if older.ID() == second {
			t.Error("one engine")
		}
		for _, a := range b.job.agents {
			a.stream.cancel()
			b.attach(a)
		}
		for turns := 0; b.job.iteration < 90 && turns < 500; turns++ {
			b.turn()
		}
	})
}

// attachTo opens an agent's stream to an engine.
func (b *bench) attachTo(a *fakeAgent, streams *fleet.Service) {
	was := b.streams
	b.streams = streams
	b.attach(a)
	b.streams = was
}
