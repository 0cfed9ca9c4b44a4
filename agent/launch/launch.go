package launch

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Errors of this package; texts are one sentence for the operator.
var (
	// ErrPlan is wrapped where a plan can't be carried out on this node.
	ErrPlan = errors.New("launch: refused")
	// ErrStart is wrapped where a process could not be started.
	ErrStart = errors.New("launch: can't start a training process")
)

// OlderError is returned for a plan of a generation that is over here. It is an ErrPlan.
type OlderError struct{ Asked, Newest uint64 }

func (e *OlderError) Error() string {
	return fmt.Sprintf("%s: generation %d is over, generation %d was launched here",
		ErrPlan, e.Asked, e.Newest)
}

// Is reports whether the error is an ErrPlan.
func (e *OlderError) Is(target error) bool { return target == ErrPlan }

// At is where a Launcher works.
type At struct {
	Node   falcon.Node
	Job    string
	ShmDir string // where the hook's files are
}

// Launcher starts and collects the training processes of one node.
type Launcher struct {
	cfg  Config
	at   At
	path string // of the record
	sys  System
	log  *slog.Logger

	rec    record
	loaded bool
	ended  map[Proc]string // how; of processes in the record
	killed map[Proc]bool   // by this Launcher
	pool   pool
}

// New builds a Launcher. record is the path of its record, of this job and node
// alone. sys nil means the machine itself.
func New(cfg Config, at At, record string, sys System, log *slog.Logger) *Launcher {
	if sys == nil {
		sys = machine{proc: "/proc"}
	}
	return &Launcher{
		cfg:    cfg,
		at:     at,
		path:   record,
		sys:    sys,
		log:    log,
		ended:  map[Proc]string{},
		killed: map[Proc]bool{},
		pool:   pool{taking: map[int]*takeover{}, now: time.Now},
	}
}

// CanStart reports whether this node can start processes.
func (l *Launcher) CanStart() bool { return l.cfg.Ranks() > 0 }

// GraceTime is how long a process has to end after SIGTERM.
func (l *Launcher) GraceTime() time.Duration { return l.cfg.graceTime() }

// Running is a process of the job that the agent follows.
type Running struct {
	PID        int
	Rank       int // -1 = unknown
	Device     falcon.Device
	Generation uint64
	Text       string // "rank 3 (pid 77)"
}

// Begin starts what the plan names and does not run yet. The same plan again,
// of this life or an earlier one, starts nothing twice. An error is a refusal
// (ErrPlan, ErrRecord), or a failed start (ErrStart), after which nothing of the
// generation runs here.
func (l *Launcher) Begin(p Plan, running []Running) error {
	if err := p.validate(l.cfg, l.at.Node); err != nil {
		return err
	}
	if err := l.loadRecord(); err != nil {
		return err
	}
	switch old := l.rec.Plan; {
	case p.Generation < old.Generation:
		return &OlderError{Newest: old.Generation, Asked: p.Generation}
	case p.Generation == old.Generation && (!p.samePlan(old) || l.rec.Ended):
		return fmt.Errorf(
			"%w: generation %d was launched here as something else, or has failed: a new launch needs a new one",
			ErrPlan, p.Generation,
		)
	}
	for _, r := range running {
		if p.Excludes(r) {
			return fmt.Errorf("%w: %s of generation %d still runs here", ErrPlan, r.Text, r.Generation)
		}
	}
	if p.Generation > l.rec.Plan.Generation {
		if err := l.beginGeneration(p); err != nil {
			return err
		}
	}
	return l.startRanks()
}

// Excludes reports whether a process must be gone before the plan can begin: any
// one of another generation, or where others are joined, one with a rank or a
// device of the plan.
func (p Plan) Excludes(r Running) bool {
	return r.Generation != p.Generation && p.replaces(r)
}

func (p Plan) replaces(r Running) bool {
	return !p.Join ||
		slices.ContainsFunc(p.Ranks, func(own Rank) bool {
			return own.Rank == r.Rank || own.Device == r.Device
		})
}

// beginGeneration turns the page for a plan of a new generation. What never made a
// communicator and is in its way is ended: of the others, those that are joined
// are kept.
func (l *Launcher) beginGeneration(p Plan) error {
	l.Collect()
	l.endTakeovers()
	older := l.livingProcesses()
	stay := older[:0]
	for _, o := range older {
		if p.replaces(Running{Rank: o.Rank, Device: l.deviceOf(o)}) {
			l.killProcess(o.Proc)
			continue
		}
		stay = append(stay, o)
	}
	l.rec = record{
		Plan:  p,
		Procs: make([]Proc, len(p.Ranks)),
		Older: stay,
		Place: l.sys.Place(),
	}
	l.forgetEnded()
	return writeRecord(l.path, l.rec)
}

// allProcesses is every process of the record, as of an earlier generation.
func (l *Launcher) allProcesses() []kept {
	all := slices.Clone(l.rec.Older)
	for i, r := range l.rec.Plan.Ranks {
		all = append(all, kept{
			Proc:       l.rec.Procs[i],
			Rank:       r.Rank,
			Generation: l.rec.Plan.Generation,
		})
	}
	return all
}

// livingProcesses are those that have not ended.
func (l *Launcher) livingProcesses() []kept {
	return slices.DeleteFunc(l.allProcesses(), func(o kept) bool {
		_, gone := l.ended[o.Proc]
		return gone || o.PID <= 0
	})
}

// deviceOf is where a process of the newest launch was put, "" for an older one,
// whose rank says enough.
func (l *Launcher) deviceOf(o kept) falcon.Device {
	for _, r := range l.rec.Plan.Ranks {
		if o.Generation == l.rec.Plan.Generation && r.Rank == o.Rank {
			return r.Device
		}
	}
	return ""
}

// forgetEnded drops the ends of processes that are not in the record any more.
func (l *Launcher) forgetEnded() {
	in := map[Proc]bool{}
	for _, o := range l.rec.Older {
		in[o.Proc] = true
	}
	maps.DeleteFunc(l.ended, func(p Proc, _ string) bool { return !in[p] })
}

// Newest is the generation of the newest launch, 0 = none, or not known.
func (l *Launcher) Newest() uint64 {
	if l.loadRecord() != nil {
		return 0
	}
	return l.rec.Plan.Generation
}

// CheckRecord returns why no launch would be carried out here: a record of earlier ones
// that can't be read.
func (l *Launcher) CheckRecord() error { return l.loadRecord() }

// loadRecord reads the record of earlier lives, once.
func (l *Launcher) loadRecord() error {
	if l.loaded {
		return nil
	}
	rec, err := readRecord(l.path)
	if err != nil {
		return err
	}
	if rec.Place != "" && rec.Place != l.sys.Place() {
		l.log.Warn(
			"processes that were started before are out of sight: the machine or the agent's container was started again since",
		)
		clear(rec.Procs) // their numbers are other processes' here
		rec.Older = nil
		rec.Ended = true
	}
	l.rec, l.loaded = rec, true
	return nil
}

// startRanks starts the ranks of the record that were not started so far. Each is
// written down before and after.
func (l *Launcher) startRanks() error {
	for i, r := range l.rec.Plan.Ranks {
		if l.rec.Procs[i].PID > 0 {
			continue
		}
		got, err := l.startRank(i, r)
		if err != nil {
			l.End()
			return fmt.Errorf("%w: rank %d: %w", ErrStart, r.Rank, err)
		}
		l.rec.Procs[i] = got
		if err := writeRecord(l.path, l.rec); err != nil {
			l.End()
			return err
		}
		l.log.Info(
			"started a training process",
			slog.Int("rank", r.Rank),
			slog.Int("pid", got.PID),
			slog.Uint64("generation", l.rec.Plan.Generation),
		)
	}
	return nil
}

// startRank starts a rank, or finds it started by an agent that was killed meanwhile. A
// standby becomes the rank where one waits.
func (l *Launcher) startRank(i int, r Rank) (Proc, error) {
	mark := markVariable + "=" + l.markValue(l.rec.Plan, r)
	if l.rec.Procs[i].PID == beingStarted {
		if found, ok := l.sys.Find(mark); ok {
			return found, nil
		}
	}
	if got, ok := l.handOver(i, r); ok {
		return got, nil
	}
	l.rec.Procs[i] = Proc{PID: beingStarted}
	if err := writeRecord(l.path, l.rec); err != nil {
		return Proc{}, err
	}
	return l.sys.Start(Spec{
		Argv: l.cfg.argumentsFor(l.rec.Plan, r),
		Env:  l.environmentFor(os.Environ(), l.rec.Plan, r),
		Dir:  l.workingDir(),
		Log:  l.logFileOf(r),
	})
}

func (l *Launcher) workingDir() string {
	return cmp.Or(l.cfg.Dir, "/")
}

// logFileOf is what a rank prints into. A log that can't be written keeps no process
// from being started: os.DevNull is in its place.
func (l *Launcher) logFileOf(r Rank) string {
	if l.cfg.LogDir == "" {
		return os.DevNull
	}
	path := l.logPathOf(r)
	f, err := openLog(path)
	if err != nil {
		l.log.Warn(
			"what a rank prints is not kept: launch.log_dir must be a folder that this user writes",
			slog.Any("err", err),
		)
		return os.DevNull
	}
	f.Close()
	return path
}

// shownLog is where people find what a rank has printed; os.DevNull = nowhere.
func (l *Launcher) shownLog(r Rank) string {
	if l.cfg.LogDir == "" {
		return os.DevNull
	}
	info, err := os.Lstat(l.logPathOf(r))
	if err != nil || !info.Mode().IsRegular() {
		return os.DevNull
	}
	return l.logPathOf(r)
}

func (l *Launcher) logPathOf(r Rank) string {
	return filepath.Join(l.cfg.LogDir, fmt.Sprintf("%s.g%d.rank%d.log",
		filepath.Base(l.at.Job), l.rec.Plan.Generation, r.Rank))
}

// Collect notices processes that have ended.
func (l *Launcher) Collect() {
	for _, o := range l.livingProcesses() {
		if how, ended := l.sys.Ended(o.Proc); ended {
			l.ended[o.Proc] = how
		}
	}
	l.stepTakeovers()
	l.collectStandbys()
}

// State is the state of one rank of the newest launch.
type State struct {
	PID   int // 0 = not of the launch
	Ended bool
	How   string // empty while it runs, or where the kernel does not report it
	Log   string // of what it printed
}

// State is the state of one rank.
func (l *Launcher) State(rank int) State {
	i := slices.IndexFunc(l.rec.Plan.Ranks, func(r Rank) bool { return r.Rank == rank })
	if i < 0 {
		return State{}
	}
	how, ended := l.ended[l.rec.Procs[i]]
	return State{
		PID:   l.rec.Procs[i].PID,
		Ended: ended,
		How:   how,
		Log:   l.shownLog(l.rec.Plan.Ranks[i]),
	}
}

// How is how a process that was launched ended; false while that is not known, or
// it is of another generation.
func (l *Launcher) How(pid int, generation uint64) (string, bool) {
	for _, o := range l.allProcesses() {
		how := l.ended[o.Proc]
		if o.PID == pid && o.Generation == generation && how != "" {
			return how, true
		}
	}
	return "", false
}

// Fresh reports whether the newest launch is of this generation and joins no others.
func (l *Launcher) Fresh(generation uint64) bool {
	return l.loadRecord() == nil &&
		l.rec.Plan.Generation == generation &&
		!l.rec.Plan.Join &&
		generation > 0
}

// EndUnseen ends what was launched for a generation before g and is not among
// followed: it has never made a communicator. It returns how many still run. A
// process is known by the rank that it was started as, as the command may have
// started another one.
func (l *Launcher) EndUnseen(g uint64, followed []Running) int {
	if l.loadRecord() != nil {
		return 0 // the next launch reports why the record can't be read
	}
	l.Collect()
	left := 0
	for _, o := range l.livingProcesses() {
		seen := slices.ContainsFunc(followed, func(r Running) bool {
			return r.Rank == o.Rank && r.Generation == o.Generation
		})
		if o.Generation < g && !seen {
			l.killProcess(o.Proc)
			left++
		}
	}
	return left
}

// End ends what runs of the newest launch, which has failed: it can't be begun
// again.
func (l *Launcher) End() {
	l.killAll()
	l.rec.Ended = true
	if err := writeRecord(l.path, l.rec); err != nil {
		l.log.Error("can't write down that a launch has failed", slog.Any("err", err))
	}
}

func (l *Launcher) killAll() {
	for _, p := range l.rec.Procs {
		if _, gone := l.ended[p]; !gone && p.PID > 0 {
			l.killProcess(p)
		}
	}
}

// killProcess ends a process that was started here and is of no use any more.
func (l *Launcher) killProcess(p Proc) {
	l.forgetTakeover(p)
	if how, ended := l.sys.Ended(p); ended {
		l.ended[p] = how
		return
	}
	if !l.killed[p] { // it may take a while to go
		l.log.Warn("ended a process of a launch that failed", slog.Int("pid", p.PID))
		l.sys.Kill(p)
	}
	l.killed[p] = true
}
