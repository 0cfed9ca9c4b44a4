package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/clock"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/journal"
)

// Whatever clocks show and agents say, the engine starts again on what it has appended, and it
// folds to the state that the engine had.
func FuzzRecordsFold(f *testing.F) {
	const step, pass, iterate, end, answer, raw, restart, boot, hang = 0, 1, 2, 3, 4, 5, 6, 7, 8
	back := binary.BigEndian.AppendUint64([]byte{step}, uint64(1<<64-30e9))
	far := binary.BigEndian.AppendUint64([]byte{step}, uint64(math.MaxInt64))
	train := bytes.Repeat([]byte{iterate, 100, pass, 60}, 12)
	f.Add(append(append(bytes.Clone(train), back...), append(bytes.Clone(train), restart)...))
	f.Add(append(append(bytes.Clone(train), far...), append(bytes.Clone(train), restart, boot, pass, 90)...))
	f.Add(append(bytes.Clone(train),
		end,
		1,
		9,
		pass,
		60,
		answer,
		0,
		pass,
		60,
		answer,
		0,
		pass,
		80,
		restart,
		answer,
		1,
	))
	f.Add(append(bytes.Clone(train), hang, 1, pass, 120, hang, 0, pass, 120, answer, 0, boot, iterate, 0))
	f.Add(append([]byte{raw, 0, 12}, []byte("no such text")...))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4096 {
			return
		}
		newFoldBench(t).play(script)
	})
}

// foldBench is an engine with its real machines, on clocks and an input that a script makes up.
type foldBench struct {
	t       *testing.T
	job     *fakeJob
	journal *journal.Journal
	engine  *Engine
	streams map[string]*fleet.Session
	asked   map[string][]*falconv1.Command

	wall  int64 // ahead of steady time, ns
	since time.Duration
	boots int
	next  int64 // iteration
}

func newFoldBench(t *testing.T) *foldBench {
	log, err := journal.Open(filepath.Join(t.TempDir(), "j.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	b := &foldBench{
		t:       t,
		job:     newFakeJob(nil),
		journal: log,
		since:   time.Hour,
	}
	b.start()
	return b
}

// read is a look at the clocks of the script.
func (b *foldBench) read() clock.Reading {
	wall := time.Unix(0, t0.UnixNano()+int64(b.since)+b.wall)
	return clock.Reading{
		Wall:   wall,
		Since:  b.since,
		BootID: fmt.Sprint(b.boots),
	}
}

// start starts an engine on the journal, where agents connect to it again.
func (b *foldBench) start() {
	policy := falcon.Policy{
		Mode:  falcon.ModeAuto,
		Cap:   falcon.RungS4,
		Owner: "fuzz",
	}
	policy.Recovery.PerHour = 1000
	few := Retention{SnapshotBytes: 8 << 10}
	e, err := New(Config{
		Journal:   b.journal,
		Clock:     b.read,
		Policy:    policy,
		Retention: few,
	})
	if err != nil {
		b.t.Fatalf("the engine does not start on its own records: %s", err)
	}
	b.engine = e
	b.streams = map[string]*fleet.Session{}
	b.asked = map[string][]*falconv1.Command{}
	for _, a := range b.job.agents {
		b.connect(a.node)
	}
}

func (b *foldBench) connect(node string) {
	s := fleet.NewSession(context.Background(), &falconv1.Hello{
		Agent:       node,
		Node:        node,
		Boot:        node,
		Job:         "sim",
		LaunchRanks: 2,
		Protocol:    falconv1.ProtocolRevision,
	})
	b.streams[node] = s
	b.engine.handleArrival(arrival{session: s, what: arriveAttach}, b.engine.cfg.Now())
	for _, a := range b.job.agents {
		for _, r := range a.ranks {
			if a.node == node {
				b.take(node, b.job.rankState(node, r))
			}
		}
	}
}

// take has the engine take a frame of a node, and settle.
func (b *foldBench) take(node string, f *falconv1.AgentFrame) {
	f.Seq = 0
	b.engine.handleArrival(arrival{session: b.streams[node], what: arriveFrame, frame: f}, b.engine.cfg.Now())
	b.turn(false)
}

func (b *foldBench) turn(tick bool) {
	if err := b.engine.Turn(tick); err != nil {
		b.t.Fatalf("the engine ends: %s", err)
	}
	for node, s := range b.streams {
		for f := s.Next(); f != nil; f = s.Next() {
			if c := f.GetCommand(); c != nil && len(b.asked[node]) < 64 {
				b.asked[node] = append(b.asked[node], c)
			}
		}
	}
}

// verify compares what the journal says with what the engine has in memory.
func (b *foldBench) verify() {
	b.t.Helper()
	m, refused, err := restore(b.journal)
	if err != nil || len(refused) > 0 {
		b.t.Fatalf("the records do not fold: %v %v", err, refused)
	}
	got := m.snapshot()
	want := b.engine.state.snapshot()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			b.t.Fatalf("not in the records: %s", want[i])
		case i >= len(want):
			b.t.Fatalf("only in the records: %s", got[i])
		case !bytes.Equal(got[i], want[i]):
			b.t.Fatalf("the records say %s\nthe engine says %s", got[i], want[i])
		}
	}
}

// script is what is left of the input.
type script []byte

func (s *script) one() byte {
	if len(*s) == 0 {
		return 0
	}
	c := (*s)[0]
	*s = (*s)[1:]
	return c
}

func (s *script) some(n int) []byte {
	out := (*s)[:min(n, len(*s))]
	*s = (*s)[len(out):]
	return out
}

func (b *foldBench) play(in []byte) {
	for s := script(in); len(s) > 0; {
		b.carry(s.one()%9, &s)
		b.turn(true)
	}
	b.verify()
	b.start()
	b.verify()
}

// carry carries out one word of the script.
func (b *foldBench) carry(word byte, s *script) {
	switch word {
	case 0: // the wall clock steps
		var by [8]byte
		copy(by[:], s.some(8))
		b.wall = int64(binary.BigEndian.Uint64(by[:]))
	case 1: // time passes: 10 ms to 3 h
		b.since += time.Duration(float64(10*time.Millisecond) * math.Pow(1.055, float64(s.one())))
	case 2:
		b.iterate(s.one())
	case 3:
		b.endRank(int32(s.one()%4), s.one())
	case 4:
		b.answer(s.one())
	case 5: // whatever a node may send
		node := b.job.agents[s.one()%2].node
		f := &falconv1.AgentFrame{}
		if proto.Unmarshal(s.some(int(s.one())), f) == nil {
			b.take(node, f)
		}
	case 6:
		b.verify()
		b.start()
	case 7: // the machine starts again
		b.boots++
		b.since = time.Second
		b.start()
	case 8: // a node goes, or all come back
		node := b.job.agents[s.one()%2].node
		b.streams[node].End(fleet.ErrClosed)
		b.engine.handleArrival(arrival{session: b.streams[node], what: arriveDetach}, b.engine.cfg.Now())
		b.turn(false)
		b.connect(node)
	}
}

// iterate has all ranks report an iteration, after a gap or again.
func (b *foldBench) iterate(how byte) {
	b.next = max(b.next+int64(int8(how))/32+1, 0)
	at := b.engine.cfg.Now().UnixNano()
	for _, a := range b.job.agents {
		list := &falconv1.Samples{}
		beat := &falconv1.Beat{AtUnixNs: at + b.wall}
		for _, r := range a.ranks {
			ms := 100 + float64(how%16)
			list.Samples = append(list.Samples, &falconv1.Sample{
				Rank:      r,
				Iteration: b.next,
				Ms:        ms,
				EndUnixNs: at,
				Exact:     true,
			})
			beat.Ranks = append(beat.Ranks, &falconv1.RankBeat{
				Rank:      r,
				Pid:       b.job.pidOf(a.node, r),
				Iteration: b.next,
				Calls:     uint64(b.next),
			})
		}
		b.take(a.node, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Beat{Beat: beat}})
		b.take(a.node, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Samples{Samples: list}})
	}
}

func (b *foldBench) endRank(r int32, how byte) {
	node := b.job.agents[r/2].node
	f := b.job.rankState(node, r)
	f.GetRank().Alive, f.GetRank().Exit = false, "killed by signal 9 (SIGKILL)"
	if how%3 == 0 {
		f.GetRank().Exit = falconv1.ExitedNormally
	}
	b.take(node, f)
}

// answer has a node say what became of the oldest command that it was sent.
func (b *foldBench) answer(how byte) {
	node := b.job.agents[how%2].node
	if len(b.asked[node]) == 0 {
		return
	}
	c := b.asked[node][0]
	b.asked[node] = b.asked[node][1:]
	b.take(node, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: &falconv1.CommandResult{
		Epoch:  c.GetEpoch(),
		Id:     c.GetId(),
		Status: falconv1.CommandStatus(how / 2 % 5),
		Detail: "by a script",
	}}})
}
