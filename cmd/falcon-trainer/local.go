package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// rankMark is replaced by the rank in --log.
const rankMark = "{rank}"

// Bounds of a local run's end.
const (
	settleWithin = 5 * time.Second // for the ranks to end by themselves after one failed
	killWithin   = 5 * time.Second // after SIGTERM
)

// rankError is the failure of one rank of a local run.
type rankError struct {
	rank, code int
}

func (e *rankError) Error() string {
	return fmt.Sprintf("rank %d ended with code %d", e.rank, e.code)
}

func localCommand(o *options) *cobra.Command {
	var perNode int
	c := &cobra.Command{
		Use:     "local",
		Short:   "Start all ranks of a job on this machine, and show what rank 0 prints",
		Example: "  falcon-trainer local --dp 4 --pp 2 --iterations 20",
		Args:    rejectArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.runLocal(c.Context(), givenFlags(c.Flags(), o.faults), perNode)
		},
	}
	c.Flags().IntVar(&perNode, "gpus-per-node", 8, "ranks per emulated node")
	return c
}

// givenFlags lists the flags to hand on, but for those that each rank gets of its own.
func givenFlags(f *pflag.FlagSet, points []string) []string {
	var out []string
	f.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "gpus-per-node", "rendezvous", "log":
		case "fault":
			for _, p := range points {
				out = append(out, "--fault="+p)
			}
		default:
			out = append(out, "--"+f.Name+"="+f.Value.String())
		}
	})
	return out
}

func (o *options) runLocal(ctx context.Context, flags []string, perNode int) error {
	if _, err := o.jobConfig(); err != nil {
		return err
	}
	if perNode < 1 {
		return fmt.Errorf("%w: --gpus-per-node %d, give at least 1", errUsage, perNode)
	}
	dir, err := os.MkdirTemp("", "falcon-trainer-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The kernel ends the ranks when the thread that started them ends.
	runtime.LockOSThread()
	f := fleet{exits: make(chan exit, o.job.Layout.World())}
	for r := range o.job.Layout.World() {
		cmd := exec.Command(
			self,
			append([]string{"--rendezvous=" + dir, "--log=" + o.logOfRank(r)}, flags...)...,
		)
		cmd.Stderr = os.Stderr
		if r == 0 {
			cmd.Stdout = os.Stdout
		}
		cmd.Env = append(os.Environ(),
			"RANK="+strconv.Itoa(r),
			"WORLD_SIZE="+strconv.Itoa(o.job.Layout.World()),
			"LOCAL_RANK="+strconv.Itoa(r%perNode),
			"FALCON_LAB_NODE="+strconv.Itoa(r/perNode),
		)
		if err := f.startRank(cmd, r); err != nil {
			f.signalAll(syscall.SIGKILL)
			return errors.Join(err, f.waitForAll(ctx))
		}
	}
	return f.waitForAll(ctx)
}

// logOfRank keeps the ranks' lines apart: rank 0's are shown, the others' are
// dropped unless --log names a file for each, or a socket for all.
func (o *options) logOfRank(r int) string {
	if r == 0 ||
		strings.Contains(o.log, rankMark) ||
		strings.HasPrefix(o.log, unixMark) {
		return o.log
	}
	return os.DevNull
}

// exit is how a rank ended.
type exit struct {
	rank int
	err  error
}

// fleet is the ranks of a local run. One goroutine per rank waits for its
// process; wait returns when all have ended.
type fleet struct {
	ranks []*exec.Cmd
	exits chan exit
}

func (f *fleet) startRank(cmd *exec.Cmd, rank int) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("trainer: can't start rank %d: %w", rank, err)
	}
	f.ranks = append(f.ranks, cmd)
	go func() { f.exits <- exit{rank, cmd.Wait()} }()
	return nil
}

// signalAll reaches every rank; one that has ended answers with an error, which
// says nothing new.
func (f *fleet) signalAll(s syscall.Signal) {
	for _, c := range f.ranks {
		_ = c.Process.Signal(s)
	}
}

// waitForAll returns the first failure, after all ranks have ended: by themselves,
// or by a signal when one failed or ctx ended.
func (f *fleet) waitForAll(ctx context.Context) error {
	var first error
	var overdue <-chan time.Time
	next := syscall.SIGTERM
	announced := ctx.Done()
	for left := len(f.ranks); left > 0; {
		select {
		case e := <-f.exits:
			left--
			if first == nil && e.err != nil {
				first = rankFailure(e)
				overdue = time.After(settleWithin)
			}
		case <-announced:
			first = context.Cause(ctx)
			announced = nil
			f.signalAll(syscall.SIGTERM)
			next = syscall.SIGKILL
			overdue = time.After(killWithin)
		case <-overdue:
			f.signalAll(next)
			next = syscall.SIGKILL
			overdue = time.After(killWithin)
		}
	}
	return first
}

func rankFailure(e exit) error {
	var ended *exec.ExitError
	if !errors.As(e.err, &ended) {
		return e.err
	}
	code := ended.ExitCode()
	if s, ok := ended.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		code = exitSignal + int(s.Signal())
	}
	return &rankError{e.rank, code}
}
