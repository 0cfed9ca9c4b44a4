package lab

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
)

// rankProcess is one training process. Owned by the loop once it is followed.
type rankProcess struct {
	rank       falcon.Rank // that it holds now
	device     falcon.Device
	launch     uint64 // that started it: 0 = the lab, else agents, for a launch or a recovery
	generation uint64 // that it trains in: of its launch, or of its newest rejoin
	joining    bool   // made anew for a recovery, and not yet part of the job
	pid        int
	cmd        *exec.Cmd // nil when an agent started it
	log        string    // file with its last words
	end        string    // how it says that it ended: endDone, …
	exited     bool
	err        error
}

// How a trainer's log ends.
const (
	endDone         = "done"
	endStopped      = "stopped"
	endCheckpointed = "checkpointed"
)

// ok says that an ended process ended as it should.
func (p *rankProcess) ok() bool {
	switch p.end {
	case endDone, endStopped, endCheckpointed:
		return p.err == nil
	case "": // a log without a last word: the exit status must do
		return p.err == nil && p.cmd != nil
	}
	return false
}

// exitRefused is what the trainer exits with when it does not begin, as for a
// setting that can't be.
const exitRefused = 2

// refused says that the process never began: no recovery helps.
func (p *rankProcess) refused() bool {
	var exit *exec.ExitError
	return p.exited && p.end == "" && errors.As(p.err, &exit) && exit.ExitCode() == exitRefused
}

// why is what is known of a bad end.
func (p *rankProcess) why() string {
	words := lastWords(p.log)
	switch {
	case p.err != nil:
		return p.err.Error() + words
	case p.end != "":
		return "ended with " + p.end + words
	}
	return "ended without a word" + words
}

func (l *Lab) startRank(r falcon.Rank, d falcon.Device) error {
	node := l.agents[int(r)/l.sc.gpusPerNode()]
	log, err := l.logFile(fmt.Sprintf("rank-%d.log", r))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(l.opt.Bin, "falcon-agent"), l.hooked(l.trainerArgs())...)
	if !l.opt.Hook {
		cmd = exec.Command(filepath.Join(l.opt.Bin, "falcon-trainer"), l.trainerArgs()...)
	}
	cmd.Stderr = log
	cmd.Env = append(l.environ(), l.rankEnv(node.setup, r, d)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := l.spawn.start(cmd, node.group()); err != nil {
		return fmt.Errorf("lab: can't start rank %d: %w", r, err)
	}
	p := &rankProcess{rank: r, device: d, pid: cmd.Process.Pid, cmd: cmd, log: log.Name()}
	l.ranks = append(l.ranks, p)
	l.setRank(p)
	l.wait.Add(1)
	go l.followRank(p, out)
	return nil
}

// hooked is the command line that runs the trainer under the hook.
func (l *Lab) hooked(trainer []string) []string {
	args := []string{"run", "--job", Job, "--hook", filepath.Join(l.opt.Bin, "lib", "libfalcon_hook.so"), "--", filepath.Join(l.opt.Bin, "falcon-trainer")}
	return append(args, trainer...)
}

// trainerArgs are the trainer's, in every launch: entries of the rendezvous carry
// their generation, and those who survive meet those who are made anew.
func (l *Lab) trainerArgs() []string {
	args := append(l.shapeArgs(), "--rendezvous", filepath.Join(l.place.dir, "rendezvous"))
	if !l.opt.Marks {
		args = append(args, "--marks=off")
	}
	if l.parks() {
		args = append(append(args, "--park"), l.sc.faultArgs()...)
	}
	return append(args, l.stateArgs()...)
}

// parks says whether ranks leave training for a recovery, which takes the hook
// and the adapter's step marks: without tags nobody knows what a rank holds.
func (l *Lab) parks() bool { return l.opt.Hook && l.opt.Marks && l.sc.parks() }

// stateArgs are about what swaps move and checkpoints write.
func (l *Lab) stateArgs() []string {
	args := []string{"--checkpoint-dir", filepath.Join(l.place.dir, "checkpoints"), "--checkpoint-every", strconv.Itoa(l.sc.Checkpoints)}
	for _, f := range []struct {
		name  string
		value float64
	}{{"--state-mb", l.sc.StateMB}, {"--copy-gb-s", l.sc.CopyGBs}, {"--disk-mb-s", l.sc.DiskMBs}} {
		if f.value > 0 {
			args = append(args, f.name, strconv.FormatFloat(f.value, 'g', -1, 64))
		}
	}
	return args
}

// nodeEnv is what every rank of a node finds in its environment.
func (l *Lab) nodeEnv(n NodeSetup) []string {
	return []string{
		envDir + "=" + l.place.dir, "FALCON_SHM_DIR=" + n.ShmDir, "FALCON_JOB=" + Job,
		"FALCON_LAB_STATE=" + n.State, envNode + "=" + strconv.Itoa(n.Index),
		"LD_LIBRARY_PATH=" + filepath.Join(l.opt.Bin, "lib"), "FALCON_TEST_MB=" + strconv.Itoa(testWorkspaceMB),
	}
}

func (l *Lab) rankEnv(n NodeSetup, r falcon.Rank, d falcon.Device) []string {
	return append(l.nodeEnv(n), "RANK="+strconv.Itoa(int(r)), "WORLD_SIZE="+strconv.Itoa(l.sc.Layout.Layout().World()),
		"LOCAL_RANK="+strconv.Itoa(d.Index()), "FALCON_DEVICE="+string(d))
}

func (l *Lab) followRank(p *rankProcess, out io.Reader) {
	defer l.wait.Done()
	readLines(out, func(ln line) { l.post(event{proc: p, line: &ln}) })
	err := p.cmd.Wait()
	l.post(event{proc: p, exited: true, err: err, unixNs: time.Now().UnixNano()})
}

// hear takes a line of a process: which rank it holds now, and what it says.
func (l *Lab) hear(p *rankProcess, ln line) {
	if ln.End != "" {
		p.end = ln.End
	}
	if ln.Fault != "" {
		l.struck(p.rank, ln.Fault, ln.UnixNs)
		return
	}
	if ln.Rejoin > 0 {
		l.rejoin(p, ln)
		return
	}
	if r := falcon.Rank(ln.Rank); ln.Iteration != nil && r != p.rank {
		p.rank = r
		l.setRank(p)
	}
	l.hearOrder(p, ln)
	if p.generation > l.records.generation && ln.Iteration != nil && l.records.rejoinOf(p.generation) == nil {
		_, members := l.newest()
		l.records.world = len(members) // all have met: a replica may have been dropped
		l.records.fewer = l.records.fewer || len(members) < l.sc.Layout.Layout().World()
	}
	if l.records.add(p.generation, ln) {
		l.faults.moved(l.placement(p.generation))
		l.turn()
	}
}

// setRank notes which process holds a rank.
func (l *Lab) setRank(p *rankProcess) {
	l.setPid(func(s *Status) { s.RankPids[strconv.Itoa(int(p.rank))] = p.pid })
}

// hearOrder acts on lines about orders and their steps.
func (l *Lab) hearOrder(p *rankProcess, ln line) {
	if ln.Kind != "" && ln.Status == 0 {
		l.faults.acted(ln.Kind, ln.From)
		l.faults.before(max(l.records.done, ln.From))
	}
	if step, ok := ln.begins(); ok {
		l.deal(step, p.rank)
	}
}

// turn is between two iterations: faults and deaths that are due.
func (l *Lab) turn() {
	l.faults.before(l.records.done)
	l.setPid(func(s *Status) { s.Iteration, s.Faults = l.records.done, l.faults.inForce() })
	l.deal("", falcon.Rank(-1))
}

// placement is the device of each rank in a generation, as its processes say.
func (l *Lab) placement(generation uint64) falcon.Placement {
	out := l.sc.Placement()
	for _, p := range l.ranks {
		if p.generation == generation && int(p.rank) < len(out) && p.device != "" {
			out[p.rank] = p.device
		}
	}
	return out
}

// live are the processes that have not ended.
func (l *Lab) live() []*rankProcess {
	var out []*rankProcess
	for _, p := range l.ranks {
		if !p.exited {
			out = append(out, p)
		}
	}
	return out
}

// working are those whose rank nobody has taken over: a frozen process lives on
// when the job goes on without it.
func (l *Lab) working() []*rankProcess {
	var out []*rankProcess
	for _, p := range l.live() {
		if !l.replaced(p) {
			out = append(out, p)
		}
	}
	return out
}

// replaced says that a later launch has started another process for p's rank, or
// a world without it.
func (l *Lab) replaced(p *rankProcess) bool {
	return int(p.rank) >= l.records.world || slices.ContainsFunc(l.ranks, func(q *rankProcess) bool { return q.rank == p.rank && q.launch > p.launch })
}

// newest are the processes of the newest generation that has begun.
func (l *Lab) newest() (generation uint64, members []*rankProcess) {
	for _, p := range l.ranks {
		if !p.joining {
			generation = max(generation, p.generation)
		}
	}
	for _, p := range l.ranks {
		if p.generation == generation && !p.joining {
			members = append(members, p)
		}
	}
	return generation, members
}

func (l *Lab) killRanks() {
	for _, p := range l.live() {
		p.signal(unix.SIGKILL)
	}
}

// signal reaches the process; gone already is as good.
func (p *rankProcess) signal(sig unix.Signal) {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig)
		return
	}
	_ = unix.Kill(p.pid, sig)
}

// outcome says in one sentence which ranks ended badly and why.
func (l *Lab) outcome() error {
	var bad []string
	_, members := l.newest()
	refused := slices.ContainsFunc(members, (*rankProcess).refused) // the others were ended for it
	for _, p := range members {
		if !p.ok() && (p.refused() || !refused) {
			bad = append(bad, fmt.Sprintf("rank %d (%s) %s", p.rank, p.device, p.why()))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRanks, strings.Join(bad, "; "))
}
