package launch

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// standbyModule starts a script at once, or waits as a standby where FALCON_STANDBY asks it to.
const standbyModule = "falcon_torch.standby"

// Variables of a standby.
const (
	standbyVariable = "FALCON_STANDBY"         // number of its socket
	importsVariable = "FALCON_STANDBY_IMPORTS" // modules, with commas
	standbySocket   = "3"                      // the first one behind standard error
)

// Bounds of standbys.
const (
	freeDefault    = 8192 // MB
	mostDefault    = 4096 // MB
	memoryMax      = 1 << 24
	importsMax     = 64
	readyWait      = 5 * time.Minute // from its start until it has imported everything
	takeWait       = time.Second     // from its order until it has become a rank
	backoffLeast   = 10 * time.Second
	backoffMost    = 10 * time.Minute
	standbyGap     = 2 * time.Second // between two starts: their imports need the processors that ranks use
	standbyLookGap = time.Second
	replyMax       = 4096
)

// Standby is the section "launch.standby".
type Standby struct {
	// beside the ranks of a node; 0 = one where the command is falcon_torch.standby, -1 = none
	Processes int      `yaml:"processes"`
	Imports   []string `yaml:"imports"` // modules, besides torch and what falcon_torch needs
	FreeMb    int      `yaml:"free_mb"` // memory that the node must have free beside them, 0 = freeDefault
	MostMb    int      `yaml:"most_mb"` // memory of one, 0 = mostDefault
}

func (s Standby) isSet() bool {
	return s.Processes != 0 || len(s.Imports) > 0 || s.FreeMb != 0 || s.MostMb != 0
}

// checkStandby says in one sentence what can't be used.
func (c Config) checkStandby() error {
	s := c.Standby
	at, runs := c.standbyAt()
	switch {
	case s.Processes < -1 || s.Processes > c.NodeRanks:
		return fmt.Errorf(
			"launch.standby.processes is %d, it must be from -1 (none) to launch.node_ranks, %d",
			s.Processes, c.NodeRanks,
		)
	case s.Processes > 0 && !runs:
		return fmt.Errorf("launch.standby: launch.command must start the script by python -m %s SCRIPT",
			standbyModule)
	case s.FreeMb < 0 ||
		s.FreeMb > memoryMax ||
		s.MostMb < 0 ||
		s.MostMb > memoryMax:
		return fmt.Errorf(
			"launch.standby: free_mb is %d and most_mb %d, they must be from 1 to %d, or 0 for %d and %d",
			s.FreeMb, s.MostMb, memoryMax, freeDefault, mostDefault,
		)
	case len(s.Imports) > importsMax:
		return fmt.Errorf("launch.standby.imports names %d modules, at most %d are possible",
			len(s.Imports), importsMax)
	}
	for _, m := range s.Imports {
		if m == "" || len(m) > argBytesMax || strings.ContainsAny(m, ", \x00") {
			return fmt.Errorf("launch.standby.imports: %q is no name of a module", m)
		}
	}
	if !runs || c.standbys() == 0 {
		return nil
	}
	for _, word := range c.Command[:at] { // they are what they are before a standby knows its rank
		if hasPlaceholder(word) {
			return fmt.Errorf(
				"launch.command: %q before %s depends on the rank, which a standby does not know when it starts; set launch.standby.processes to -1, or move it behind",
				word, standbyModule,
			)
		}
	}
	return nil
}

// hasPlaceholder reports whether a word differs from rank to rank, or from launch to launch.
func hasPlaceholder(word string) bool {
	return Plan{World: 1, Generation: 1, Resume: true}.placeholders(Rank{}).Replace(word) != word
}

// standbyAt is where in the command the script begins; false where none can wait for its order.
func (c Config) standbyAt() (int, bool) {
	for i := 1; i+1 < len(c.Command); i++ {
		if c.Command[i-1] == "-m" && c.Command[i] == standbyModule {
			return i + 1, true
		}
	}
	return 0, false
}

// standbys is how many wait beside the ranks of a node.
func (c Config) standbys() int {
	_, runs := c.standbyAt()
	switch {
	case !runs || c.Standby.Processes < 0:
		return 0
	case c.Standby.Processes == 0:
		return 1
	}
	return c.Standby.Processes
}

func (s Standby) freeMb() int {
	if s.FreeMb == 0 {
		return freeDefault
	}
	return s.FreeMb
}

func (s Standby) mostMb() int {
	if s.MostMb == 0 {
		return mostDefault
	}
	return s.MostMb
}

// Memory is what a System may know of memory. Where it is not known no standby is kept.
type Memory interface {
	// Free is what the node's processes may still take, false where that is unknown.
	Free() (mb int, known bool)
	// Resident is what a process takes, false where that is unknown.
	Resident(p Proc) (mb int, known bool)
}

// Standbys is what an agent says of its standbys.
type Standbys struct {
	Wanted     int
	Ready      int
	ResidentMb int    // of all together
	Why        string // fewer are there than are wanted; empty where they are about to come
}

// standby is a process that waits for its order.
type standby struct {
	proc  Proc
	line  int // socket
	began time.Time
	ready bool
	mb    int
}

// pool is the standbys of a Launcher. They end with it: their sockets close.
type pool struct {
	all    []standby
	taking map[int]*takeover // by index into the plan's ranks
	gone   []Proc            // that were ended, until the kernel has let go of them
	now    func() time.Time

	looked, started time.Time
	backoff         time.Duration // after one that failed
	wanted          int
	why             string
}

// KeepStandbys keeps as many standbys as are wanted: those that are too many or too large
// end, and one is started at a time, where start allows it. A spare, which holds no rank,
// keeps one for each that it may be given.
func (l *Launcher) KeepStandbys(spare, start bool) {
	l.pool.wanted = l.cfg.standbys()
	if spare && l.pool.wanted > 0 {
		l.pool.wanted = l.cfg.NodeRanks
	}
	if l.pool.wanted == 0 && len(l.pool.all) == 0 {
		return
	}
	now := l.pool.now()
	l.pool.hearReady(l)
	if now.Sub(l.pool.looked) < standbyLookGap {
		return
	}
	l.pool.looked = now
	enough := l.boundStandbys(now)
	for len(l.pool.all) > l.pool.wanted {
		l.endStandby(len(l.pool.all)-1, "")
	}
	if start && enough && len(l.pool.all) < l.pool.wanted && l.pool.mayStart(now) {
		l.startStandby(now)
	}
}

// EndStandbys ends all that wait.
func (l *Launcher) EndStandbys(why string) {
	for len(l.pool.all) > 0 {
		l.endStandby(0, why)
	}
	l.pool.wanted, l.pool.why = 0, why
}

// Standbys is the present state.
func (l *Launcher) Standbys() Standbys {
	out := Standbys{Wanted: l.pool.wanted, Why: l.pool.why}
	for _, s := range l.pool.all {
		out.ResidentMb += s.mb
		if s.ready {
			out.Ready++
		}
	}
	if len(l.pool.all) >= out.Wanted && out.Wanted > 0 {
		out.Why = ""
	}
	return out
}

// mayStart reports whether the next one may be started: one imports at a time, and one
// that has failed is not tried again at once.
func (p *pool) mayStart(now time.Time) bool {
	importing := slices.ContainsFunc(p.all, func(s standby) bool { return !s.ready })
	return !importing && now.Sub(p.started) >= max(standbyGap, p.backoff)
}

// hearReady takes what standbys have said. Those that have ended are dropped.
func (p *pool) hearReady(l *Launcher) {
	for i := len(p.all) - 1; i >= 0; i-- {
		r, open := readReply(p.all[i].line)
		switch {
		case !open && p.all[i].ready:
			l.failStandby(i, "a standby has ended by itself")
		case !open:
			l.failStandby(i, "a standby ended before it was ready: "+l.standbyLogHint())
		case r.Ready:
			p.all[i].ready, p.why = true, ""
			l.logReady(p.all[i])
		}
	}
}

// logReady says what the standby costs.
func (l *Launcher) logReady(s standby) {
	mb := 0
	if mem, ok := l.sys.(Memory); ok {
		mb, _ = mem.Resident(s.proc)
	}
	l.log.Info(
		"a standby is ready to take a lost rank",
		slog.Int("pid", s.proc.PID),
		slog.Int("memory_mb", mb),
		slog.Duration("imports", l.pool.now().Sub(s.began)),
	)
}

// boundStandbys ends standbys where memory is short, or one takes too much or too long.
// It reports whether there is room for one more.
func (l *Launcher) boundStandbys(now time.Time) bool {
	mem, ok := l.sys.(Memory)
	free, known := 0, false
	if ok {
		free, known = mem.Free()
	}
	need := l.cfg.Standby.freeMb()
	if !known || free < need {
		why := "it is not known how much memory is free"
		if known {
			why = fmt.Sprintf("%d MB of memory are free, launch.standby.free_mb wants %d", free, need)
		}
		if len(l.pool.all) > 0 {
			l.endStandby(0, why)
		}
		l.pool.why = why
		return false
	}
	most := l.cfg.Standby.mostMb()
	for i := len(l.pool.all) - 1; i >= 0; i-- {
		s := &l.pool.all[i]
		s.mb, known = mem.Resident(s.proc)
		if s.ready && now.Sub(s.began) > backoffMost {
			l.pool.backoff = 0
		}
		switch {
		case known && s.mb > most:
			l.failStandby(i, fmt.Sprintf("a standby took %d MB, launch.standby.most_mb allows %d",
				s.mb, most))
		case !s.ready && now.Sub(s.began) > readyWait:
			l.failStandby(i, fmt.Sprintf("a standby was not ready after %v: %s",
				readyWait, l.standbyLogHint()))
		}
	}
	return free >= need+l.usualMb()
}

// usualMb is what a standby takes: as the largest of those that are ready, else a guess.
func (l *Launcher) usualMb() int {
	most := 0
	for _, s := range l.pool.all {
		if s.ready {
			most = max(most, s.mb)
		}
	}
	if most == 0 {
		return 1024
	}
	return most
}

// failStandby ends one that is of no use, and has the next one wait.
func (l *Launcher) failStandby(i int, why string) {
	l.endStandby(i, why)
	l.pool.delay()
}

func (p *pool) delay() {
	p.backoff = min(max(2*p.backoff, backoffLeast), backoffMost)
}

func (l *Launcher) endStandby(i int, why string) {
	s := l.pool.all[i]
	l.pool.all = slices.Delete(l.pool.all, i, i+1)
	_ = unix.Close(s.line)
	l.sys.Kill(s.proc)
	l.pool.gone = append(l.pool.gone, s.proc)
	if why != "" {
		l.pool.why = why
		l.log.Warn(
			"a standby was ended",
			slog.Int("pid", s.proc.PID),
			slog.String("why", why),
		)
	}
}

// collectStandbys releases those that were ended.
func (l *Launcher) collectStandbys() {
	l.pool.gone = slices.DeleteFunc(l.pool.gone, func(p Proc) bool {
		_, ended := l.sys.Ended(p)
		return ended
	})
}

// startStandby starts one.
func (l *Launcher) startStandby(now time.Time) {
	l.pool.started = now
	s, err := l.newStandby(now)
	if err != nil {
		l.pool.why = err.Error()
		l.pool.delay()
		l.log.Warn("can't start a standby", slog.Any("err", err))
		return
	}
	l.pool.all = append(l.pool.all, s)
	l.log.Info("started a standby", slog.Int("pid", s.proc.PID))
}

func (l *Launcher) newStandby(now time.Time) (standby, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return standby{}, fmt.Errorf("launch: no socket for a standby: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "standby")
	defer theirs.Close()
	got, err := l.sys.Start(Spec{
		Argv: slices.Clone(l.cfg.Command),
		Env:  l.standbyEnvironment(os.Environ()),
		Dir:  l.workingDir(),
		Log:  l.standbyLog(),
		Line: theirs,
	})
	if err != nil {
		_ = unix.Close(pair[0])
		return standby{}, fmt.Errorf("%w: %w", ErrStart, err)
	}
	return standby{proc: got, line: pair[0], began: now}, nil
}

// standbyEnvironment is the environment of a process that has no rank yet.
func (l *Launcher) standbyEnvironment(base []string) []string {
	out := l.environmentFor(base, Plan{}, Rank{})
	own := map[string]bool{}
	for _, name := range ownVariables {
		own[name] = true
	}
	out = slices.DeleteFunc(out, func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		return own[key] ||
			hasPlaceholder(l.cfg.Env[key]) ||
			key == standbyVariable ||
			key == importsVariable
	})
	out = append(out, standbyVariable+"="+standbySocket, "FALCON_NODE="+string(l.at.Node))
	if len(l.cfg.Standby.Imports) > 0 {
		out = append(out, importsVariable+"="+strings.Join(l.cfg.Standby.Imports, ","))
	}
	return out
}

func (l *Launcher) standbyLog() string {
	if l.cfg.LogDir == "" {
		return os.DevNull
	}
	return filepath.Join(l.cfg.LogDir, filepath.Base(l.at.Job)+".standby.log")
}

func (l *Launcher) standbyLogHint() string {
	if log := l.standbyLog(); log != os.DevNull {
		return "what it printed is in " + log
	}
	return "set launch.log_dir to see what it prints"
}
