package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

const probeHelp = `Start sampling jobs on idle nodes, one after the other, until a deadline: COMMAND is your
own, of a small training job under Falcon's hook whose agents are attached to this
engine. Its iterations go through the same detector as a training job's, and its incidents
into the history: falcon history has a column for each kind.

Kind a runs on one node at a time, kind b on --size nodes; the nodes take turns. Before
each one the engine is asked: it refuses where it watches training (its falcon.yaml must
say probe: a or b), where a node has no agent, is fenced or holds a process, and to a
role below approver. Each start is an audit line.

COMMAND finds FALCON_PROBE_NODES (n0,n1), FALCON_PROBE_KIND and FALCON_PROBE_DEADLINE
(Unix seconds) in its environment. It runs on this machine, in a process group of its own:
to start the job on the nodes, as srun or ssh do, is its task, and so is to end it on
SIGTERM. That is sent at the deadline, at the end of --each, and when this command is
interrupted; 10 s later the group is killed.`

// probeSettings are what one call asks for.
type probeSettings struct {
	kind   string
	nodes  []string
	size   int
	every  time.Duration
	span   time.Duration // of the whole
	each   time.Duration // of one job, 0 = up to the deadline
	reason string
	grace  time.Duration // between SIGTERM and SIGKILL
}

func probeCommand() *cobra.Command {
	var target engineTarget
	s := probeSettings{grace: 10 * time.Second}
	c := &cobra.Command{
		Use:   "probe --kind KIND --nodes NODES -- COMMAND …",
		Short: "Start sampling jobs on idle nodes until a deadline",
		Long:  probeHelp,
		Example: `  falcon probe --kind a --nodes n0,n1,n2 --every 2h --for 24h -- ./sample.sh
  falcon probe --kind b --size 4 --nodes n0,n1,n2,n3,n4,n5 --for 12h --reason "new rack" -- ./sample.sh`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.check(args); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			r := &prober{
				settings: s,
				command:  args,
				out:      c.OutOrStdout(),
				errs:     c.ErrOrStderr(),
				ask: func(q *falconv1.ProbeRequest) (*falconv1.ProbeReply, error) {
					return ask(
						c,
						&target,
						func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.ProbeReply, error) {
							return cl.Probe(ctx, q)
						},
					)
				},
			}
			return r.runAll(ctx)
		},
	}
	target.declareFlags(c)
	f := c.Flags()
	f.StringVar(&s.kind, "kind", "", "a: one node, computation; b: several nodes, communication")
	f.StringSliceVar(&s.nodes, "nodes", nil, "nodes that take turns, such as n0,n1")
	f.IntVar(&s.size, "size", 4, "nodes of one job of kind b")
	f.DurationVar(&s.every, "every", time.Hour,
		"from one start to the next, at least; a job is never cut short for it")
	f.DurationVar(&s.span, "for", 24*time.Hour, "when all is ended, from now on; at most 720h")
	f.DurationVar(&s.each, "each", 0, "how long one job may run, at most 24h (default: up to the deadline)")
	f.StringVar(&s.reason, "reason", "", "why, for the record")
	return c
}

func (s *probeSettings) check(command []string) error {
	nodes := slices.Clone(s.nodes)
	slices.Sort(nodes)
	switch {
	case len(command) == 0:
		return fmt.Errorf(
			"%w: give the command of the sampling job behind --, such as: falcon probe --kind a --nodes n0 -- ./sample.sh",
			errUsage,
		)
	case s.kind != "a" && s.kind != "b":
		return fmt.Errorf("%w: --kind %q is neither a (one node) nor b (several)", errUsage, s.kind)
	case len(nodes) == 0 ||
		nodes[0] == "" ||
		len(slices.Compact(nodes)) != len(s.nodes):
		return fmt.Errorf("%w: --nodes takes the names of nodes, each once, such as n0,n1", errUsage)
	case s.kind == "b" && (s.size < 2 || s.size > len(s.nodes)):
		return fmt.Errorf("%w: --size %d is not between 2 and the %d nodes given",
			errUsage, s.size, len(s.nodes))
	case s.span <= 0 || s.span > 720*time.Hour:
		return fmt.Errorf("%w: --for %s is not between 0 and 720h", errUsage, s.span)
	case s.every <= 0:
		return fmt.Errorf("%w: --every %s is no time", errUsage, s.every)
	case s.each < 0 || s.each > 24*time.Hour:
		return fmt.Errorf("%w: --each %s is not between 0 and 24h", errUsage, s.each)
	}
	return nil
}

// turn are the nodes of one job: all take their turn, in the order given.
func (s *probeSettings) turn(n int) []string {
	size := s.size
	if s.kind == "a" {
		size = 1
	}
	out := make([]string, size)
	for i := range out {
		out[i] = s.nodes[(n*size+i)%len(s.nodes)]
	}
	return out
}

// prober starts the jobs.
type prober struct {
	settings  probeSettings
	command   []string
	out, errs io.Writer
	ask       func(*falconv1.ProbeRequest) (*falconv1.ProbeReply, error)

	started, well int
}

// errInterrupted ends the jobs before the deadline.
var errInterrupted = errors.New("interrupted")

// runAll starts jobs until the deadline. It fails where none was started.
func (p *prober) runAll(ctx context.Context) error {
	deadline := time.Now().Add(p.settings.span)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var refused error
	for n := 0; ctx.Err() == nil; n++ {
		next := time.Now().Add(p.settings.every)
		if err := p.runOne(ctx, n, deadline); err != nil {
			refused = err
			fmt.Fprintf(p.out, "probe %d on %s is not started: %s\n",
				n+1, strings.Join(p.settings.turn(n), ","), sentence(err))
		}
		if !next.Before(deadline) {
			break
		}
		sleepUntil(ctx, next)
	}
	fmt.Fprintf(p.out, "%d sampling jobs were started, %d of them ended well\n", p.started, p.well)
	switch {
	case p.started == 0 && refused != nil:
		return fmt.Errorf("no sampling job was started; the last refusal: %w", refused)
	case errors.Is(ctx.Err(), context.Canceled):
		return errInterrupted
	}
	return nil
}

func sleepUntil(ctx context.Context, at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// runOne asks for the nodes, runs the job and gives them back. Its error is why there is
// no job.
func (p *prober) runOne(ctx context.Context, n int, deadline time.Time) error {
	nodes := p.settings.turn(n)
	span := time.Until(deadline)
	if p.settings.each > 0 {
		span = min(span, p.settings.each)
	}
	span = min(span, 24*time.Hour)
	if span <= 0 {
		return nil
	}
	r, err := p.ask(&falconv1.ProbeRequest{
		Kind:   p.settings.kind,
		Nodes:  nodes,
		ForNs:  int64(span),
		Reason: p.settings.reason,
	})
	if err != nil {
		return err
	}
	// else it runs out by itself
	defer func() { _, _ = p.ask(&falconv1.ProbeRequest{End: true}) }()
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	c := p.process(ctx, nodes, time.Unix(0, r.GetDeadlineUnixNs()))
	began := time.Now()
	if err := c.Start(); err != nil {
		return fmt.Errorf("can't start %s: %w", p.command[0], err)
	}
	p.started++
	fmt.Fprintf(p.out, "probe %d on %s is started\n", n+1, strings.Join(nodes, ","))
	err = c.Wait()
	took := time.Since(began).Round(time.Millisecond)
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // what the command left behind
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(p.out, "probe %d was ended after %s\n", n+1, took)
	case err != nil:
		fmt.Fprintf(p.out, "probe %d failed after %s: %s\n", n+1, took, sentence(err))
	default:
		p.well++
		fmt.Fprintf(p.out, "probe %d ended after %s\n", n+1, took)
	}
	return nil
}

// process is the command in a process group of its own, which ends with ctx.
func (p *prober) process(ctx context.Context, nodes []string, deadline time.Time) *exec.Cmd {
	c := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	c.Stdout, c.Stderr = p.errs, p.errs
	c.Env = append(os.Environ(),
		"FALCON_PROBE_NODES="+strings.Join(nodes, ","),
		"FALCON_PROBE_KIND="+p.settings.kind,
		fmt.Sprintf("FALCON_PROBE_DEADLINE=%d", deadline.Unix()),
	)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error {
		return syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
	}
	c.WaitDelay = p.settings.grace
	return c
}
