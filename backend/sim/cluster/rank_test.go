package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// proc is one training process with its hook: a small state machine whose
// shared memory the agent reads.
type proc struct {
	c          *Cluster
	n          *node
	pid        int
	start      uint64 // by the kernel: with the pid it names the process for ever
	rank       int
	dev        falcon.Device
	gen        uint64 // launch that started it, 0 = by hand
	mark       string // FALCON_LAUNCH
	path       string
	born       time.Duration
	bornUnixNs int64 // by the wall clock

	shown    bool // its file is there
	spoke    bool // the file of its last word may be there
	alive    bool
	frozen   bool
	frozenAt time.Duration
	how      string        // by the kernel
	endedAt  time.Duration // when it ended
	normal   bool
	old      bool // its hook is of the version before

	team *team
	step int64 // newest that it holds
	kept int64 // oldest that it holds, for the one before; NoIteration = holds nothing

	ctl      ring.Control
	comms    []ring.Comm
	marks    []ring.Mark
	records  []ring.Record
	timings  []ring.Timing
	place    ring.Place
	env      int    // RANK of its environment: the rank that it was started as
	window   uint32 // profile that is open, 0 = none
	windowAt int64  // its base event
	windowBy int64  // when it ends by itself
	result   ring.TestResult
	park     ring.Park
	leaving  bool // on the way to its end: it parks no more
	rejoined ring.Rejoined
	rejoin   *ring.Rejoin
	stopGen  uint64
	pause    ring.Pause
	boundary int64
	pausedNs int64
	box      [4]falcon.Order // the mailbox: by id modulo its size, as the hook's
	newest   uint64          // order in it, 0 = none

	watches []*watch
}

// Times of a process.
const (
	unwindLeast, unwindMost = 5 * time.Millisecond, 400 * time.Millisecond
	importLeast, importMost = 500 * time.Millisecond, 3 * time.Second
	groupsLeast, groupsMost = 50 * time.Millisecond, 800 * time.Millisecond
	joinMost                = 60 * time.Second // a rejoin that not all take fails
)

func (c *Cluster) newProc(n *node, rank int, dev falcon.Device, gen uint64) *proc {
	c.starts++
	pid := n.freePid()
	p := &proc{
		c:     c,
		n:     n,
		pid:   pid,
		start: c.starts,
		rank:  rank,
		env:   rank,
		dev:   dev,
		gen:   gen,
		alive: true,
		born:  c.now,
		kept:  falcon.NoIteration,
		step:  falcon.NoIteration,
		path:  filepath.Join(n.dir, "falcon.sim."+strconv.Itoa(pid)),
		comms: []ring.Comm{},
		ctl: ring.Control{
			Iteration:     -1,
			StepTag:       -1,
			Coverage:      ring.CoverAdapter | ring.CoverInit | ring.CoverColl,
			Generation:    gen,
			GenerationNow: gen,
			TestWorkspace: 64 << 20,
		},
		boundary: -1,
		old:      n.old,
	}
	if c.setup.hosted {
		p.ctl.Coverage |= ring.CoverStays
	}
	l := c.setup.layout
	p.ctl.TP = l.TP
	p.ctl.DP = l.DP
	p.ctl.PP = l.PP
	p.ctl.MicroBatches = 8
	p.ctl.Described = 1
	p.bornUnixNs = n.clock.wall().UnixNano()
	n.procs = append(n.procs, p)
	return p
}

// freePid is a process's number: a new one, or, where numbers come round, that of one that has
// ended on the node. A file of that one that is still there is the new one's now.
func (n *node) freePid() int {
	if n.c.setup.reuse && n.c.starts%2 == 0 {
		for _, p := range n.procs {
			if !p.alive && n.holder(p.pid) == p {
				p.shown, p.spoke = false, false
				return p.pid
			}
		}
	}
	n.c.pids++
	return n.c.pids
}

// holder is the process that has a number now, or had it last.
func (n *node) holder(pid int) *proc {
	for _, p := range slices.Backward(n.procs) {
		if p.pid == pid {
			return p
		}
	}
	return nil
}

// show makes the process's file.
func (p *proc) show() {
	if err := os.WriteFile(p.path, nil, 0o600); err != nil {
		p.c.violate("%s", err)
	}
	p.shown = true
}

// connect gives the process communicators, of the world and of its replicas.
// Those that a suspension aborted stay in the table as aborted.
func (p *proc) connect(set uint64) {
	l := p.c.setup.layout
	at := l.Coord(falcon.Rank(p.rank))
	for i := range p.comms {
		if p.comms[i].State == ring.CommLive {
			p.comms[i].State = ring.CommGone
		}
	}
	for _, x := range []ring.Comm{
		{ID: 1e6 + set*1000, Size: l.World(), Rank: p.rank, Name: "world"},
		{ID: 2e6 + set*1000 + uint64(at.PP*l.TP+at.TP), Size: l.DP, Rank: at.DP, Name: "dp"},
	} {
		x.Slot = uint32(len(p.comms))
		x.Generation = 1
		x.State = ring.CommLive
		p.comms = append(p.comms, x)
	}
}

// comm is the newest communicator of a name.
func (p *proc) comm(name string) *ring.Comm {
	for i := range slices.Backward(p.comms) {
		if p.comms[i].Name == name {
			return &p.comms[i]
		}
	}
	return nil
}

// call records one call that was entered at a moment, and times it while a
// profile window is open.
func (p *proc) call(name string, step int64, enterNs, tookNs int64, bytes uint64) {
	x := p.comm(name)
	p.records = append(p.records, ring.Record{
		EnterNs: enterNs,
		ExitNs:  enterNs + 1000,
		Count:   bytes / 4,
		Ordinal: x.Calls,
		Seq:     x.Calls + 1,
		Comm:    x.Slot,
		Peer:    -1,
		Step:    uint32(step),
		Op:      falcon.OpAllReduce,
		Dtype:   7,
	})
	if p.window != 0 && enterNs >= p.windowAt && enterNs < p.windowBy {
		p.ctl.TimingsWritten++
		p.timings = append(p.timings, ring.Timing{
			Comm:       x.Slot,
			Ordinal:    x.Calls,
			Op:         falcon.OpAllReduce,
			Dtype:      7,
			Peer:       -1,
			Bytes:      bytes,
			StartNs:    enterNs - p.windowAt,
			DurationNs: tookNs,
			Window:     p.window,
		})
	}
	x.Calls++
}

// kill ends the process at once; how is what the kernel would say.
func (p *proc) kill(how string) {
	p.end(how, false)
}

// finish ends it in order: it takes its file back.
func (p *proc) finish() {
	switch {
	case !p.alive:
		return
	case p.n.paused:
		p.c.after(awhile, p.finish)
		return
	}
	if !p.old {
		if err := os.WriteFile(p.path+ring.EndedSuffix, nil, 0o600); err != nil {
			p.c.violate("%s", err)
		}
		p.spoke = true
	}
	_ = os.Remove(p.path)
	p.shown = false
	for i := range p.comms {
		if p.comms[i].State == ring.CommLive {
			p.comms[i].State = ring.CommGone
		}
	}
	p.end(falconv1.ExitedNormally, true)
}

func (p *proc) end(how string, normal bool) {
	if !p.alive {
		return
	}
	p.alive, p.how, p.normal, p.endedAt = false, how, normal, p.c.now
	p.c.log("rank %d (pid %d on %s, generation %d) ends: %s",
		p.rank, p.pid, p.n.name, p.gen, how)
	for _, w := range p.watches {
		w.end()
	}
}

func (p *proc) String() string {
	return fmt.Sprintf("rank %d (pid %d on %s)", p.rank, p.pid, p.n.name)
}

// able reports whether the process takes part in what comes next.
func (p *proc) able(t *team) bool {
	return p.alive && !p.still() && p.team == t && p.n.power && !p.held()
}

// still reports whether the process does not run: it is frozen, or its node is paused.
func (p *proc) still() bool { return p.frozen || p.n.paused }

// held reports whether a pause holds the process before the next iteration.
func (p *proc) held() bool {
	return p.pause.Wanted != 0 && p.pause.State == ring.PauseQuiet
}

func (p *proc) mono() int64 {
	return p.monoAt(p.c.now)
}

// monoAt is what the node's monotonic clock showed at a moment.
func (p *proc) monoAt(at time.Duration) int64 {
	return p.n.clock.mono(at).Nanoseconds()
}

// Header and what follows is what the agent sees.
func (p *proc) Header() ring.Header {
	return ring.Header{
		PID:         p.pid,
		Rank:        p.env,
		World:       p.c.setup.layout.World(),
		LocalRank:   p.dev.Index(),
		Job:         "sim",
		Device:      string(p.dev),
		StartMonoNs: p.monoAt(p.born),
	}
}

// UnixNs is by the wall clock as the process was started.
func (p *proc) UnixNs(mono int64) int64 {
	return p.bornUnixNs + mono - p.monoAt(p.born)
}

func (p *proc) Drain(buf []ring.Record) (int, uint64) {
	n := copy(buf, p.records)
	p.records = p.records[n:]
	return n, 0
}

const marksKept = 64

func (p *proc) Marks(next uint64, out []ring.Mark) (marks []ring.Mark, following, lost uint64) {
	all := uint64(len(p.marks))
	if all > marksKept && next < all-marksKept {
		lost = all - marksKept - next
		next = all - marksKept
	}
	return append(out[:0], p.marks[min(next, all):]...), all, lost
}

func (p *proc) Timings(w uint32, out []ring.Timing) []ring.Timing {
	out = out[:0]
	for _, t := range p.timings {
		if t.Window == w {
			out = append(out, t)
		}
	}
	return out
}

func (p *proc) StartProfile(w uint32, untilNs int64, _ ring.CommMask) {
	p.window, p.windowAt, p.windowBy, p.timings = w, p.mono(), untilNs, nil
}

func (p *proc) StopProfile() {
	if p.window != 0 {
		p.ctl.ProfileDone = p.window
		p.window = 0
	}
}

// Control is the hook's half as it stands at this moment.
func (p *proc) Control() ring.Control {
	c := p.ctl
	c.HeartbeatNs = p.mono()
	if p.frozen {
		c.HeartbeatNs = p.monoAt(p.frozenAt)
	}
	if !p.alive {
		c.HeartbeatNs = p.monoAt(p.endedAt)
	}
	if p.normal && !p.old {
		c.Ended = ring.End{AtNs: p.monoAt(p.endedAt)}
	}
	if !p.old {
		c.Coverage |= ring.CoverWaiting
		if t := p.team; t != nil && t.waits(p) && p.alive {
			c.WaitingSinceNs = p.monoAt(max(t.stuck, t.stall)) // in storage it waits for none
		}
	}
	c.StepTag = p.tag()
	return c
}

// tag is the step tag now: in the optimizer it is -1.
func (p *proc) tag() int64 {
	if p.team != nil && p.team.in(p) {
		return -1
	}
	p.settle()
	return p.step
}

// settle books an optimizer step that the process has finished by now.
func (p *proc) settle() {
	if t := p.team; t != nil && t.done(p) && p.step == t.iteration {
		p.kept = p.step
		p.step++
	}
}

func (p *proc) Comms(out []ring.Comm) []ring.Comm {
	return append(out[:0], p.comms...)
}
func (p *proc) Place() (ring.Place, bool) { return p.place, true }
func (p *proc) NewestOrder() uint64       { return p.newest }
func (p *proc) SetPeriod(uint32, uint32)  {}
func (p *proc) Pause() ring.Pause         { return p.pause }
func (p *proc) TestResult() (ring.TestResult, bool) {
	return p.result, p.result.ID != 0
}
func (p *proc) Park() (ring.Park, bool) { return p.park, true }
func (p *proc) Rejoined() (ring.Rejoined, bool) {
	return p.rejoined, true
}
func (p *proc) Beat(bool)    {}
func (p *proc) Err() error   { return nil }
func (p *proc) Close() error { return nil }

func (p *proc) JobState() ring.JobState {
	return ring.JobState{
		Bytes:      1 << 20,
		CopyBytesS: 1 << 30,
		Checkpoint: p.c.job.checkpoint,
		Can:        p.c.setup.can(),
	}
}

func (p *proc) PutOrder(o falcon.Order) error {
	p.box[o.ID%uint64(len(p.box))], p.newest = o, max(p.newest, o.ID)
	return nil
}

// PutTest runs a test: those of a pair end together, as far as anybody can tell.
func (p *proc) PutTest(t ring.Test) error {
	r := ring.TestResult{
		ID:       t.ID,
		Kind:     t.Kind,
		Status:   ring.TestDone,
		Repeats:  t.Repeats,
		MedianNs: 5e6,
		BestNs:   4e6,
		Bytes:    t.Bytes,
	}
	if t.Kind == ring.TestGEMM {
		r.MedianNs = int64(5e6 * p.c.job.slowness(p))
	}
	if t.Kind == ring.TestMint {
		id := make([]byte, 128)
		id[0] = byte(t.ID)
		r.IDs = [2][]byte{id, id}
	}
	p.c.after(p.c.between(5*time.Millisecond, 80*time.Millisecond), func() {
		if p.alive && !p.still() && p.mono() < t.UntilNs {
			p.result = r
			p.n.poke()
		}
	})
	return nil
}

// Arm takes a pause up; Release gives it back.
func (p *proc) Arm(order uint64, untilNs, boundary int64, _ []ring.Cut) error {
	if p.team == nil || p.team.iteration >= boundary {
		return ring.ErrMissed
	}
	p.pause = ring.Pause{
		Wanted:  order,
		UntilNs: untilNs,
		Seen:    order,
		State:   ring.PauseArmed,
	}
	p.boundary = boundary
	p.c.after(time.Duration(untilNs-p.mono()), func() {
		if p.pause.Wanted == order && !p.pause.State.Over() {
			p.letGo(ring.PauseExpired)
		}
	})
	return nil
}

func (p *proc) Release() {
	if p.pause.Wanted != 0 && !p.pause.State.Over() {
		p.letGo(ring.PauseReleased)
	}
	p.pause.Wanted = 0
}

func (p *proc) letGo(state ring.PauseState) {
	p.pause.State, p.pause.ReleasedNs = state, p.mono()
	if p.pause.TrappedNs > 0 {
		p.pausedNs += p.pause.ReleasedNs - p.pause.TrappedNs
	}
}

// Suspend has the process unwind and park, unless it is frozen or gone.
func (p *proc) Suspend(generation uint64, untilNs int64) error {
	p.ctl.SuspendWanted = max(p.ctl.SuspendWanted, generation)
	p.c.after(p.c.between(unwindLeast, unwindMost), func() {
		p.unwind(generation, untilNs)
	})
	return nil
}

func (p *proc) unwind(generation uint64, untilNs int64) {
	again := func() {
		p.c.after(20*time.Millisecond, func() {
			p.unwind(generation, untilNs)
		})
	}
	switch {
	case !p.alive ||
		p.leaving ||
		generation < p.ctl.SuspendWanted ||
		p.ctl.Suspended >= generation:
		return
	case p.still():
		again()
		return
	case p.team != nil && p.team.in(p) && p.mono() < untilNs:
		again() // the optimizer is left alone
		return
	}
	tag := p.tag()
	p.c.job.leave(p)
	for i := range p.comms {
		if p.comms[i].State == ring.CommLive {
			p.comms[i].State = ring.CommAborted
		}
	}
	p.ctl.Suspended, p.ctl.SuspendedNs = generation, p.mono()
	p.rejoin = nil
	status := ring.ParkSuspended
	if p.park.On && p.park.Status == ring.ParkJoin || p.step == falcon.NoIteration {
		status = ring.ParkJoin
	}
	p.stand(generation, status, tag)
}

// rejoinedWell is the newest rejoin that has succeeded.
func (p *proc) rejoinedWell() uint64 {
	if p.rejoined.Status != 0 {
		return 0
	}
	return p.rejoined.Generation
}

// stand parks.
func (p *proc) stand(generation uint64, status int32, tag int64) {
	p.park = ring.Park{
		On:         true,
		Generation: generation,
		Status:     status,
		Tag:        tag,
		SinceNs:    p.mono(),
		Hold:       falcon.RankHold{Steps: [2]int64{-1, -1}},
	}
	if p.step != falcon.NoIteration && tag >= 0 {
		p.park.Hold = falcon.RankHold{
			Steps: [2]int64{p.step, p.kept},
			Sums:  [2]uint64{p.c.job.digest(p.rank, p.step), p.c.job.digest(p.rank, p.kept)},
		}
	}
	if p.c.setup.verbose {
		p.c.log("rank %d (pid %d on %s) parks in generation %d with tag %d, holds %v",
			p.rank, p.pid, p.n.name, generation, tag, p.park.Hold.Steps)
	}
	if g := p.stopGen; g >= generation && g > 0 {
		p.c.after(10*time.Millisecond, p.finish)
	}
	p.n.poke()
}

// Stop ends the process where it parks; one that is frozen there, once it goes on.
func (p *proc) Stop(generation uint64) {
	p.stopGen = max(p.stopGen, generation)
	if p.park.On && !p.still() {
		p.c.after(10*time.Millisecond, p.obeyStop)
	}
}

func (p *proc) obeyStop() {
	if p.stopGen > 0 && p.park.On && !p.still() {
		p.finish()
	}
}

// PutRejoin lets the process go on.
func (p *proc) PutRejoin(r ring.Rejoin) error {
	p.ctl.RejoinOrdered = r.Generation
	p.c.after(p.c.between(unwindLeast, 50*time.Millisecond), func() { p.take(r) })
	return nil
}

func (p *proc) take(r ring.Rejoin) {
	switch {
	case p.still() && p.alive:
		p.c.after(50*time.Millisecond, func() { p.take(r) })
	case !p.alive ||
		!p.park.On ||
		p.park.Generation != r.Generation ||
		p.ctl.SuspendWanted > r.Generation:
	default:
		p.park = ring.Park{}
		// orders of before are void
		p.ctl.GenerationNow = r.Generation
		p.newest = 0
		p.box = [4]falcon.Order{}
		p.rejoin = &r
		p.c.job.join(p, r.Generation, r.Resume, false)
	}
}

// can is what the job's adapter declares.
func (s setup) can() falcon.Can {
	return falcon.Can{
		Declared:   true,
		Park:       !s.hosted,
		Split:      true,
		Place:      !s.hosted,
		Checkpoint: true,
		Versions:   1,
	}
}
