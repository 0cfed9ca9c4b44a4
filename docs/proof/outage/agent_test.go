package outage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery/ranktable/ranktabletest"
)

// perNode is how many devices, and so ranks, a node has.
const perNode = 8

// can is what the ranks declare.
var can = &falconv1.Capabilities{
	Park:       true,
	Split:      true,
	Place:      true,
	Checkpoint: true,
	Versions:   1,
}

// rank is one emulated training process.
type rank struct {
	number   int32
	pid      int32
	made     uint64 // generation of the launch
	park     *falconv1.Park
	rejoined uint64
}

// agent is one emulated node. Its goroutine is the only one that touches its
// fields and sends; another one receives for it.
type agent struct {
	c      *Cluster
	node   string
	ranks  []rank
	stream grpc.BidiStreamingClient[falconv1.AgentFrame, falconv1.EngineFrame]
	seq    uint64
	lost   atomic.Bool // says nothing more
	frames chan *falconv1.EngineFrame
	again  chan met // the job has met
	rejoin *falconv1.Command

	reads      bool   // it reads and parses the rank table; the others only take it
	tabled     bool   // it has a rank table
	generation uint64 // of it
	kept       []byte // it, where it reads
}

// framesMax bounds what waits for an agent; the rest stays in its stream.
const framesMax = 16

// attach opens the stream and tells of the node's ranks.
func (a *agent) attach(ctx context.Context, cc *grpc.ClientConn) error {
	var err error
	if a.stream, err = falconv1.NewFleetClient(cc).Attach(ctx, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("outage: %s: %w", a.node, err)
	}
	hello := &falconv1.Hello{
		Agent:       a.node,
		Node:        a.node,
		Boot:        "1",
		Version:     "emulated",
		Job:         "outage",
		Emulated:    true,
		LaunchRanks: perNode,
	}
	for i := range perNode {
		hello.Devices = append(hello.Devices, fmt.Sprintf("%s.g%d", a.node, i))
	}
	return a.stream.Send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Hello{Hello: hello}})
}

// run is the agent's life.
func (a *agent) run(ctx context.Context) {
	a.c.wg.Go(a.receive)
	var beat <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case f, ok := <-a.frames:
			if !ok {
				return
			}
			if w := f.GetWelcome(); w != nil {
				t := time.NewTicker(time.Duration(w.GetBeatPeriodMs()) * time.Millisecond)
				defer t.Stop()
				beat = t.C
				a.tellAll()
			}
			a.obey(f.GetCommand())
		case <-beat:
			a.beat()
		case m := <-a.again:
			a.trainOn(m)
		}
	}
}

// receive hands on what the engine sends, until the stream ends.
func (a *agent) receive() {
	defer close(a.frames)
	for {
		f, err := a.stream.Recv()
		if err != nil {
			if a.stream.Context().Err() == nil && !a.lost.Load() {
				a.c.fail(fmt.Errorf("outage: the stream of %s has ended: %w", a.node, err))
			}
			return
		}
		if f.GetAck() != nil {
			continue
		}
		select {
		case a.frames <- f:
		case <-a.stream.Context().Done():
			return
		}
	}
}

// send numbers a frame. Why a stream is broken its receiver tells.
func (a *agent) send(f *falconv1.AgentFrame) {
	if a.lost.Load() {
		return
	}
	if f.GetBeat() == nil {
		a.seq++
		f.Seq = a.seq
	}
	if err := a.stream.Send(f); err != nil && !errors.Is(err, io.EOF) && a.stream.Context().Err() == nil {
		a.c.fail(fmt.Errorf("outage: %s: %w", a.node, err))
	}
}

func (a *agent) beat() {
	at, waits := a.c.iteration(), a.c.waitingMs()
	b := &falconv1.Beat{AtUnixNs: time.Now().UnixNano()}
	for i := range a.ranks {
		b.Ranks = append(b.Ranks, &falconv1.RankBeat{
			Rank:         a.ranks[i].number,
			Pid:          a.ranks[i].pid,
			Iteration:    at,
			StepTag:      at,
			HookAgeMs:    1,
			Generation:   a.ranks[i].rejoined,
			Calls:        uint64(max(at, 0)),
			WaitingMs:    waits,
			WaitingKnown: true,
		})
	}
	a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Beat{Beat: b}})
}

func (a *agent) tellAll() {
	for i := range a.ranks {
		a.tell(&a.ranks[i])
	}
}

// tell describes one rank: TP 8 inside the node, DP across all nodes, ZeRO-1 in
// two instances.
func (a *agent) tell(r *rank) {
	world := int32(a.c.Devices)
	a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: &falconv1.RankState{
		Rank:         r.number,
		Device:       fmt.Sprintf("%s.g%d", a.node, r.number%perNode),
		Pid:          r.pid,
		Alive:        true,
		Tp:           perNode,
		Dp:           world / perNode,
		Pp:           1,
		World:        world,
		MicroBatches: 8,
		Comms: []*falconv1.Comm{
			{Id: uint64(1 + r.number/perNode), Name: "tp", Size: perNode, Rank: r.number % perNode},
			{
				Id:   uint64(1_000_000 + r.number%perNode),
				Name: "dp",
				Size: world / perNode,
				Rank: r.number / perNode,
			},
		},
		Can:                can,
		Generation:         r.made,
		Park:               r.park,
		RejoinedGeneration: r.rejoined,
		ZeroStage:          1,
		ZeroInstances:      2,
		StateBytes:         a.c.Model.StateBytes,
	}}})
}

func (a *agent) obey(c *falconv1.Command) {
	if a.lost.Load() || c == nil {
		return
	}
	done := &falconv1.CommandResult{
		Epoch:  c.GetEpoch(),
		Id:     c.GetId(),
		Status: falconv1.CommandStatus_COMMAND_STATUS_DONE,
	}
	switch {
	case c.GetSuspend() != nil:
		a.suspend(c.GetSuspend().GetGeneration())
	case c.GetLaunch() != nil:
		a.launch(c.GetLaunch())
	case c.GetTable() != nil:
		if err := a.table(c.GetTable()); err != nil {
			done.Status, done.Detail = falconv1.CommandStatus_COMMAND_STATUS_REFUSED, err.Error()
		}
	case c.GetRejoin() != nil:
		a.rejoin = c
		a.c.ready(c.GetRejoin())
		return // answered once the job has met
	}
	a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: done}})
}

// suspend parks every rank with the step that it is in and the one before.
func (a *agent) suspend(generation uint64) {
	at := a.c.iteration()
	for i := range a.ranks {
		r := &a.ranks[i]
		if r.park == nil {
			r.park = &falconv1.Park{
				Tag:   at,
				Steps: []int64{at, at - 1},
				Sums:  []uint64{a.c.sum(r.number, at), a.c.sum(r.number, at-1)},
			}
		}
		r.park.Generation = generation
		a.tell(r)
	}
}

// launch makes ranks that park at once: their start is simulated.
func (a *agent) launch(l *falconv1.LaunchCommand) {
	for _, q := range l.GetRanks() {
		r := rank{
			number: q.GetRank(),
			pid:    50_000 + q.GetRank(),
			made:   l.GetGeneration(),
			park:   &falconv1.Park{Generation: l.GetGeneration(), Joining: true},
		}
		a.ranks = append(a.ranks, r)
		a.tell(&r)
	}
}

// table takes a rank table; on some nodes it is written, read back and parsed,
// as every node does.
func (a *agent) table(t *falconv1.TableCommand) error {
	if len(t.GetTable()) == 0 && (!a.tabled || t.GetBaseGeneration() != a.generation) {
		return fmt.Errorf("outage: %s has no table that a delta applies to", a.node)
	}
	a.tabled, a.generation = true, t.GetGeneration()
	a.c.tables.Add(1)
	if !a.reads {
		return nil
	}
	begin := time.Now()
	if err := a.renew(t); err != nil {
		return err
	}
	path := filepath.Join(a.c.dir, a.node+".table")
	if err := writeWhole(path, a.kept); err != nil {
		return err
	}
	written := time.Now()
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	got, _, err := ranktabletest.Decode(b)
	if err != nil {
		return err
	}
	if len(got) != a.c.Devices {
		return fmt.Errorf("outage: the table has %d ranks of %d", len(got), a.c.Devices)
	}
	a.c.readTable(
		written.Sub(begin),
		time.Since(written),
		len(b),
		len(t.GetTable())+len(t.GetDelta()),
	)
	return nil
}

// renew keeps the new table: the whole, or what a delta makes of the old one.
func (a *agent) renew(t *falconv1.TableCommand) error {
	if len(t.GetTable()) > 0 {
		a.kept = t.GetTable()
		return nil
	}
	var err error
	a.kept, err = ranktabletest.Apply(a.kept, t.GetDelta())
	return err
}

// writeWhole replaces a file so that readers see all of it or what was before.
func writeWhole(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "table")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// trainOn lets the parked ranks go on, and answers the order to rejoin.
func (a *agent) trainOn(m met) {
	if a.rejoin == nil || a.lost.Load() {
		return
	}
	c := a.rejoin
	a.rejoin = nil
	done := &falconv1.CommandResult{
		Epoch:  c.GetEpoch(),
		Id:     c.GetId(),
		Status: falconv1.CommandStatus_COMMAND_STATUS_DONE,
	}
	for _, seat := range c.GetRejoin().GetSeats() {
		i := slices.IndexFunc(a.ranks, func(r rank) bool {
			return r.number == seat.GetRank() && r.pid == seat.GetPid()
		})
		if i < 0 {
			a.c.fail(fmt.Errorf("outage: %s is to rejoin rank %d, which it does not have",
				a.node, seat.GetRank()))
			return
		}
		r := &a.ranks[i]
		r.park, r.rejoined = nil, c.GetRejoin().GetGeneration()
		a.tell(r)
		done.Ranks = append(done.Ranks, &falconv1.RankAck{
			Rank:       r.number,
			NowRank:    r.number,
			Iteration:  c.GetRejoin().GetResumeIteration(),
			Generation: r.rejoined,
			GroupsMs:   m.groups.Seconds() * 1e3,
		})
	}
	a.send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Result{Result: done}})
}
