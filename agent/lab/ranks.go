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
	joining    bool   // started as a replacement, and not yet part of the job
	pid        int
	cmd        *exec.Cmd // nil when an agent started it
	log        string    // file with its last lines
	end        string    // how it ended by its log: endDone, …
	exited     bool
	err        error
}

// How a trainer's log ends.
const (
	endDone         = "done"
	endStopped      = "stopped"
	endCheckpointed = "checkpointed"
)

// endedWell reports whether an ended process ended as it should.
func (p *rankProcess) endedWell() bool {
	switch p.end {
	case endDone, endStopped, endCheckpointed:
		return p.err == nil
	case "": // a log without an end line: the exit status must do
		return p.err == nil && p.cmd != nil
	}
	return false
}

// exitRefused is what the trainer exits with when it does not begin, as for a
// setting that can't be.
const exitRefused = 2

// neverBegan reports whether the process never began: no recovery helps.
func (p *rankProcess) neverBegan() bool {
	var exit *exec.ExitError
	return p.exited &&
		p.end == "" &&
		errors.As(p.err, &exit) &&
		exit.ExitCode() == exitRefused
}

// describeEnd is what is known of a bad end.
func (p *rankProcess) describeEnd() string {
	words := lastWords(p.log)
	switch {
	case p.err != nil:
		return p.err.Error() + words
	case p.end != "":
		return "ended with " + p.end + words
	}
	return "ended without a message" + words
}

func (l *Lab) startRank(r falcon.Rank, d falcon.Device) error {
	node := l.agents[int(r)/l.sc.gpusPerNode()]
	log, err := l.openLogFile(fmt.Sprintf("rank-%d.log", r))
	if err != nil {
		return err
	}
	defer log.Close()
	trainer := l.trainerCommand()
	cmd := exec.Command(filepath.Join(l.opt.Bin, "falcon-agent"), l.hookedCommand(trainer)...)
	if !l.opt.Hook {
		cmd = exec.Command(trainer[0], trainer[1:]...)
	}
	cmd.Stderr = log
	cmd.Env = append(l.labEnvironment(), l.rankEnvironment(node.setup, r, d)...)
	if l.opt.Train != nil {
		cmd.Dir = l.opt.Train.Dir
		cmd.Env = append(cmd.Env, l.opt.Train.environment("stdout")...)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := l.spawn.startCommand(cmd, node.processGroup()); err != nil {
		return fmt.Errorf("lab: can't start rank %d: %w", r, err)
	}
	p := &rankProcess{
		rank:   r,
		device: d,
		pid:    cmd.Process.Pid,
		cmd:    cmd,
		log:    log.Name(),
	}
	l.ranks = append(l.ranks, p)
	l.assignRank(p)
	l.wait.Go(func() { l.followRank(p, out) })
	return nil
}

// hookedCommand is the command line that runs a trainer under the hook, or watched by
// the plug-in, which the lab's NCCL calls as NCCL 2.28 does.
func (l *Lab) hookedCommand(trainer []string) []string {
	args := []string{"run", "--job", Job, "--hook", filepath.Join(l.opt.Bin, "lib", "libfalcon_hook.so")}
	if l.opt.Plugin {
		args = append(args, "--monitor", "--nccl", "2.28.9")
	}
	return append(append(args, "--"), trainer...)
}

// trainerCommand is what a rank runs: the user's own command, or the lab's trainer.
func (l *Lab) trainerCommand() []string {
	if l.opt.Train != nil {
		return l.opt.Train.Command
	}
	return append([]string{filepath.Join(l.opt.Bin, "falcon-trainer")}, l.trainerArgs()...)
}

// trainerArgs are the trainer's, in every launch: entries of the rendezvous carry
// their generation, and the survivors meet the replacements.
func (l *Lab) trainerArgs() []string {
	args := append(l.shapeArgs(),
		"--rendezvous", filepath.Join(l.place.dir, "rendezvous"),
	)
	if !l.opt.Marks {
		args = append(args, "--marks=off")
	}
	if l.opt.NoAdapter {
		args = append(args, "--no-adapter")
	}
	if l.rejoinsExpected() {
		args = append(append(args, "--park"), l.sc.faultArgs()...)
	}
	return append(args, l.stateArgs()...)
}

// rejoinsExpected reports whether ranks leave training for a recovery, which takes the hook
// and the adapter's step marks: without tags it is not known what a rank holds.
func (l *Lab) rejoinsExpected() bool {
	return !l.opt.Plugin && l.opt.Marks && !l.opt.NoAdapter && l.recoveryExpected()
}

// recoveryExpected reports whether the job goes on after a death: its ranks rejoin, or, without
// an adapter, it is restarted whole.
func (l *Lab) recoveryExpected() bool {
	return l.opt.Hook && (l.opt.Marks || l.opt.NoAdapter) && l.sc.rejoinsExpected()
}

// stateArgs are about what swaps move and checkpoints write.
func (l *Lab) stateArgs() []string {
	args := []string{
		"--checkpoint-dir", l.place.checkpoints(),
		"--checkpoint-every", strconv.Itoa(l.sc.Checkpoints),
	}
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

// nodeEnvironment is what every rank of a node finds in its environment.
func (l *Lab) nodeEnvironment(n NodeSetup) []string {
	return []string{
		envDir + "=" + l.place.dir,
		"FALCON_SHM_DIR=" + n.ShmDir,
		"FALCON_JOB=" + Job,
		"FALCON_LAB_STATE=" + n.State,
		envNode + "=" + strconv.Itoa(n.Index),
		"LD_LIBRARY_PATH=" + filepath.Join(l.opt.Bin, "lib"),
		"FALCON_TEST_MB=" + strconv.Itoa(testWorkspaceMB),
	}
}

func (l *Lab) rankEnvironment(n NodeSetup, r falcon.Rank, d falcon.Device) []string {
	return append(l.nodeEnvironment(n),
		"RANK="+strconv.Itoa(int(r)),
		"WORLD_SIZE="+strconv.Itoa(l.sc.Layout.Layout().World()),
		"LOCAL_RANK="+strconv.Itoa(d.Index()),
		"LOCAL_WORLD_SIZE="+strconv.Itoa(l.sc.gpusPerNode()),
		"FALCON_DEVICE="+string(d),
	)
}

func (l *Lab) followRank(p *rankProcess, out io.Reader) {
	kept := keepOutput(l, p)
	defer kept.Close()
	readLines(io.TeeReader(out, kept), func(ln line) {
		l.postEvent(event{proc: p, line: &ln})
	})
	err := p.cmd.Wait()
	l.postEvent(event{
		proc:   p,
		exited: true,
		err:    err,
		unixNs: time.Now().UnixNano(),
	})
}

// handleLine takes a line of a process: the rank that it holds now, and its event. It reports
// whether the process has rejoined, or has tried to.
func (l *Lab) handleLine(p *rankProcess, ln line) bool {
	if ln.End != "" {
		p.end = ln.End
	}
	if ln.Fault != "" {
		l.reachedPoint(p.rank, ln.Fault, ln.UnixNs)
		return false
	}
	if ln.Rejoin > 0 {
		l.takeRejoin(p, ln)
		return true
	}
	if r := falcon.Rank(ln.Rank); ln.Iteration != nil && r != p.rank {
		p.rank = r
		l.assignRank(p)
	}
	l.hearOrder(p, ln)
	if p.generation > l.records.generation &&
		ln.Iteration != nil &&
		l.records.rejoinOfGeneration(p.generation) == nil {
		_, members := l.newestGeneration()
		l.records.world = len(members) // all have met: a replica may have been dropped
		l.records.fewer = l.records.fewer || len(members) < l.sc.Layout.Layout().World()
	}
	if l.records.addLine(p.generation, ln) {
		l.faults.setPlacement(l.placement(p.generation))
		l.applyDueFaults()
	}
	return false
}

// assignRank notes which process holds a rank.
func (l *Lab) assignRank(p *rankProcess) {
	l.updateStatus(func(s *Status) {
		s.RankPids[strconv.Itoa(int(p.rank))] = p.pid
	})
}

// hearOrder acts on lines about orders and their steps.
func (l *Lab) hearOrder(p *rankProcess, ln line) {
	if ln.Kind != "" && ln.Status == 0 {
		l.faults.onActionApplied(ln.Kind, ln.From)
		l.faults.applyBefore(max(l.records.done, ln.From))
	}
	if step, ok := ln.beginsStep(); ok {
		l.dealDeaths(step, p.rank)
	}
}

// applyDueFaults is between two iterations: faults and deaths that are due.
func (l *Lab) applyDueFaults() {
	l.faults.applyBefore(l.records.done)
	l.updateStatus(func(s *Status) {
		s.Iteration, s.Faults = l.records.done, l.faults.namesInForce()
	})
	l.dealDeaths("", falcon.Rank(-1))
	l.stalls.deal(l)
}

// placement is the device of each rank in a generation, as its processes log it.
func (l *Lab) placement(generation uint64) falcon.Placement {
	out := l.sc.Placement()
	for _, p := range l.ranks {
		if p.generation == generation && int(p.rank) < len(out) && p.device != "" {
			out[p.rank] = p.device
		}
	}
	return out
}

// liveProcesses are the processes that have not ended.
func (l *Lab) liveProcesses() []*rankProcess {
	var out []*rankProcess
	for _, p := range l.ranks {
		if !p.exited {
			out = append(out, p)
		}
	}
	return out
}

// workingProcesses are those whose rank no other has taken over: a frozen process lives on
// when the job goes on without it.
func (l *Lab) workingProcesses() []*rankProcess {
	var out []*rankProcess
	for _, p := range l.liveProcesses() {
		if !l.wasReplaced(p) {
			out = append(out, p)
		}
	}
	return out
}

// wasReplaced reports whether a later launch has started another process for p's rank, or
// a world without it.
func (l *Lab) wasReplaced(p *rankProcess) bool {
	return int(p.rank) >= l.records.world ||
		slices.ContainsFunc(l.ranks, func(q *rankProcess) bool {
			return q.rank == p.rank && q.launch > p.launch
		})
}

// newestGeneration are the processes of the newest generation that has begun.
func (l *Lab) newestGeneration() (generation uint64, members []*rankProcess) {
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
	for _, p := range l.liveProcesses() {
		p.signalProcess(unix.SIGKILL)
	}
}

// signalProcess reaches the process and what it has started; gone already is as good.
func (p *rankProcess) signalProcess(sig unix.Signal) {
	below := processesBelow(p.pid, parentsOfAll())
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig) // by its handle: its number may be another's once it was waited for
	} else {
		_ = unix.Kill(p.pid, sig)
	}
	signalAll(below, sig)
}

// describeOutcome is, in one sentence, which ranks ended badly and why.
func (l *Lab) describeOutcome() error {
	var bad []string
	_, members := l.newestGeneration()
	refused := slices.ContainsFunc(members, (*rankProcess).neverBegan) // the others were ended for it
	for _, p := range members {
		if !p.endedWell() && (p.neverBegan() || !refused) {
			bad = append(bad, fmt.Sprintf("rank %d (%s) %s", p.rank, p.device, p.describeEnd()))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrRanks, strings.Join(bad, "; "))
}
