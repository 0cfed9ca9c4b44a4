package engine

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/recovery"
)

// asleep is a recovery machine that sees nothing, for the tests of other parts.
type asleep struct{}

func (asleep) Step(time.Time, recovery.Input) {}
func (asleep) Tick(time.Time)                 {}
func (asleep) Ready() recovery.Ready {
	return recovery.Ready{}
}
func (asleep) Advance() {}
func (asleep) Check(recovery.Decision) error {
	return recovery.ErrUnknown
}

func (asleep) CheckDemand(recovery.Demand) error {
	return recovery.ErrDemand
}

func (asleep) PredictMs() float64 {
	return 0
}

func (asleep) OnlyPaused(time.Time, falcon.Node, time.Duration) bool {
	return false
}

func (asleep) Hears(time.Time) bool {
	return true
}

func (asleep) ForAction(string) (falcon.Recovery, bool) {
	return falcon.Recovery{}, false
}

// fakeCrew is an agent's half of a recovery.
type fakeCrew struct {
	parked    map[int32]*falconv1.Park // by rank
	made      map[int32]uint64         // generation that launched a rank's process
	rejoined  map[int32]uint64
	suspended uint64
	stops     int
	launches  int // joins carried out
	tables    []*falconv1.TableCommand
	refuse    map[string]string // by kind of command
	mute      map[string]int    // so many commands of a kind get lost
	onPark    func()            // done once, when the ranks have parked
	blunt     bool              // a stop ends processes that do not park too
	gone      bool              // the node is lost
	loaded    []bool            // by rank that rejoined: from the checkpoint
	declares  func(*falconv1.RankState)
}

func (a *fakeAgent) recovers(c *falconv1.Command, j *fakeJob) bool {
	kind := ""
	switch {
	case c.GetSuspend() != nil:
		kind = suspendKind
	case c.GetLaunch().GetJoin():
		kind = launchKind
	case c.GetTable() != nil:
		kind = tableKind
	case c.GetRejoin() != nil:
		kind = rejoinKind
	case c.GetStop() != nil:
		kind = stopKind
	default:
		return false
	}
	if a.crew.mute[kind] > 0 {
		a.crew.mute[kind]--
		delete(a.executed, cmdKey{c.GetEpoch(), c.GetId()})
		return true
	}
	if why := a.crew.refuse[kind]; why != "" {
		a.reply(c, &falconv1.CommandResult{
			Status: falconv1.CommandStatus_COMMAND_STATUS_REFUSED,
			Detail: why,
		})
		return true
	}
	done := &falconv1.CommandResult{Status: falconv1.CommandStatus_COMMAND_STATUS_DONE}
	switch kind {
	case suspendKind:
		a.park(c.GetSuspend().GetGeneration(), j)
	case launchKind:
		a.join(c.GetLaunch(), j)
	case tableKind:
		a.crew.tables = append(a.crew.tables, c.GetTable())
	case rejoinKind:
		if why := a.unseated(c.GetRejoin(), j); why != "" {
			done.Status = falconv1.CommandStatus_COMMAND_STATUS_REFUSED
			done.Detail = why
			break
		}
		done.Ranks = a.rejoin(c.GetRejoin(), j)
	case stopKind:
		a.crew.stops++
		a.stopRanks(c.GetStop(), j)
	}
	a.reply(c, done)
	return true
}

func (a *fakeAgent) crewOf() *fakeCrew {
	if a.crew.parked == nil {
		a.crew.parked = map[int32]*falconv1.Park{}
		a.crew.made = map[int32]uint64{}
		a.crew.rejoined = map[int32]uint64{}
	}
	return &a.crew
}

// park has all live ranks leave: each holds the newest step and the one before.
func (a *fakeAgent) park(generation uint64, j *fakeJob) {
	crew := a.crewOf()
	crew.suspended = max(crew.suspended, generation)
	for _, r := range a.ranks {
		p := crew.parked[r]
		if p = proto.CloneOf(p); p == nil { // the engine may still read the one that was sent
			p = &falconv1.Park{
				Tag:   j.iteration,
				Steps: []int64{j.iteration, j.iteration - 1},
				Sums:  []uint64{uint64(j.iteration) + 7, uint64(j.iteration) + 6},
			}
		}
		p.Generation = crew.suspended
		crew.parked[r] = p
		a.send(j.rankState(a.node, r))
	}
	if f := crew.onPark; f != nil {
		crew.onPark = nil
		f()
	}
}

func (a *fakeAgent) join(l *falconv1.LaunchCommand, j *fakeJob) {
	crew := a.crewOf()
	if a.place.pids == nil {
		a.place.pids = map[int32]int32{}
	}
	for _, r := range l.GetRanks() {
		if slices.Contains(a.ranks, r.GetRank()) {
			a.t.Errorf("rank %d is launched on %s where it lives", r.GetRank(), a.node)
		}
		crew.launches++
		a.ranks = append(a.ranks, r.GetRank())
		a.place.pids[r.GetRank()] = int32(1000*l.GetGeneration()) + r.GetRank()
		crew.made[r.GetRank()] = l.GetGeneration()
		crew.parked[r.GetRank()] = &falconv1.Park{
			Generation: l.GetGeneration(),
			Joining:    true,
		}
		a.send(j.rankState(a.node, r.GetRank()))
	}
}

// unseated names a seat whose process does not wait for this order.
func (a *fakeAgent) unseated(o *falconv1.RejoinCommand, j *fakeJob) string {
	for _, seat := range o.GetSeats() {
		r := seat.GetRank()
		p := a.crewOf().parked[r]
		if p == nil || p.GetGeneration() > o.GetGeneration() {
			return fmt.Sprintf("rank %d does not park in generation %d", r, o.GetGeneration())
		}
		if j.pidOf(a.node, r) != seat.GetPid() {
			a.t.Errorf("rank %d on %s is to rejoin generation %d as process %d, and process %d parks",
				r, a.node, o.GetGeneration(), seat.GetPid(), j.pidOf(a.node, r))
			return "another process"
		}
	}
	return ""
}

// rejoin lets the seats train on; the job does once all of its ranks do.
func (a *fakeAgent) rejoin(o *falconv1.RejoinCommand, j *fakeJob) []*falconv1.RankAck {
	crew := a.crewOf()
	var out []*falconv1.RankAck
	for _, seat := range o.GetSeats() {
		r := seat.GetRank()
		ack := &falconv1.RankAck{
			Rank:       r,
			NowRank:    r,
			Generation: o.GetGeneration(),
			Iteration:  o.GetResumeIteration(),
			GroupsMs:   5,
			RestoreMs:  7,
		}
		crew.loaded = append(crew.loaded, o.GetCheckpoint())
		if crew.rejoined[r] == o.GetGeneration() {
			a.t.Errorf("rank %d on %s rejoins generation %d twice", r, a.node, o.GetGeneration())
		}
		crew.rejoined[r] = o.GetGeneration()
		delete(crew.parked, r)
		out = append(out, ack)
		a.send(j.rankState(a.node, r))
	}
	for r := range int32(fakeRanks) {
		if !slices.ContainsFunc(j.agents, func(x *fakeAgent) bool {
			return slices.Contains(x.ranks, r) && x.crew.rejoined[r] == o.GetGeneration()
		}) {
			return out
		}
	}
	j.iteration = o.GetResumeIteration()
	j.stalled = false
	j.resumed = append(j.resumed, j.iteration)
	return out
}

func (a *fakeAgent) stopRanks(c *falconv1.StopCommand, j *fakeJob) {
	for _, r := range slices.Clone(a.ranks) {
		if (a.crewOf().parked[r] != nil || a.crew.blunt) &&
			(len(c.GetRanks()) == 0 || slices.Contains(c.GetRanks(), r)) {
			a.crash(r, j, falconv1.ExitedNormally)
		}
	}
}

// crash ends one process; the others stall.
func (a *fakeAgent) crash(r int32, j *fakeJob, exit string) {
	s := j.rankState(a.node, r)
	s.GetRank().Alive, s.GetRank().Exit = false, exit
	s.GetRank().Park = nil
	a.ranks = slices.DeleteFunc(a.ranks, func(x int32) bool { return x == r })
	delete(a.crewOf().parked, r)
	delete(a.crew.made, r)
	delete(a.crew.rejoined, r)
	j.stalled = true
	a.send(s)
}

// lose takes a node from the job: its stream breaks, and it says no more.
func (a *fakeAgent) lose(j *fakeJob) {
	a.crew.gone = true
	a.ranks = nil
	j.stalled = true
	if a.stream != nil {
		a.stream.cancel()
		a.stream = nil
	}
}

// beats sends the sign of life of every agent.
func (j *fakeJob) beats() {
	if j.waitedMs += 100; !j.stalled {
		j.waitedMs = 0
	}
	for _, a := range j.agents {
		if a.stream == nil || a.crew.gone {
			continue
		}
		b := &falconv1.Beat{
			Standing: a.standing(j),
			AtUnixNs: time.Now().UnixNano(),
		}
		for _, r := range a.ranks {
			b.Ranks = append(b.Ranks, &falconv1.RankBeat{
				Rank:         r,
				Pid:          j.pidOf(a.node, r),
				Iteration:    j.iteration,
				StepTag:      j.iteration,
				WaitingMs:    j.waitedMs,
				WaitingKnown: !j.mute,
			})
		}
		a.stream.in <- &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Beat{Beat: b}}
	}
}

func (a *fakeAgent) dress(s *falconv1.RankState) *falconv1.RankState {
	crew := a.crewOf()
	s.Park = crew.parked[s.GetRank()]
	s.RejoinedGeneration = crew.rejoined[s.GetRank()]
	if g := crew.made[s.GetRank()]; g != 0 {
		s.Generation = g
	}
	if f := a.crew.declares; f != nil {
		f(s)
	}
	if g := s.GetRejoinedGeneration(); g != 0 {
		s.Comms[0].Id = 77 + 1000*g
	}
	return s
}

// recoverBench is a job with a spare, a machine that recovers, and agents that
// are heard.
func recoverBench(b *bench) {
	b.recovers = true
	b.job.spare()
}
