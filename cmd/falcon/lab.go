package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/agent/lab"
)

func labCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "lab",
		Short:   "A training cluster without GPUs on this machine",
		Long:    "A training cluster without GPUs on this machine: real processes, shared memory, agents and gRPC; emulated are the pace of GPUs and links, CPU contention, and what the counters of GPUs and network ports say.",
		Example: "  falcon lab run --scenario gpu-throttle --headless --approve s2 --report r.json",
	}
	c.AddCommand(
		labRunCommand(),
		labSwarmCommand(),
		namesLab(labInjectCommand()),
		namesLab(labStatusCommand()),
		namesLab(labStopCommand()),
	)
	return c
}

// labOptions are the flags of `falcon lab run`.
type labOptions struct {
	reader     readerOption
	lines      bool // the console is lines for a screen reader
	scenario   string
	tp, dp, pp int
	nodes      int
	spares     int
	iterations int
	headless   bool
	hold       bool
	approve    string
	report     string
	journal    string
	record     string
	seed       int64
	hook       string
	marks      string
	adapter    string
	unpaced    bool
	theme      string
	ascii      bool
	prefs      string
	noRef      bool
	train      string
	// whose PyTorch the command runs; empty = found in the line
	trainPython string
	gflops      float64
}

func labRunCommand() *cobra.Command {
	o := labOptions{}
	c := &cobra.Command{
		Use:   "run",
		Short: "Play a scenario: a console on a terminal, plain lines without one",
		Long: "Play a scenario: a console on a terminal, plain lines without one.\nShipped scenarios: " + strings.Join(
			lab.Names(),
			", ",
		) + ".",
		Example: "  falcon lab run --scenario gpu-throttle --headless --approve s2 --report r.json",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(
				c.Context(),
				os.Interrupt,
				syscall.SIGTERM,
				syscall.SIGHUP,
			)
			defer stop()
			var err error
			if o.lines, err = o.reader.readerWanted(o.prefs); err != nil {
				return err
			}
			if done, err := guarded(hasScreen() && !o.headless && !o.lines, "lab",
				"its nodes and ranks ended with it"); done {
				return err
			}
			return runScenario(ctx, c, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.scenario, "scenario", "gpu-throttle", "name of a shipped scenario, or a YAML file")
	f.IntVar(&o.tp, "tp", 0, "tensor-parallel size (0 = the scenario's)")
	f.IntVar(&o.dp, "dp", 0, "data-parallel size (0 = the scenario's)")
	f.IntVar(&o.pp, "pp", 0, "pipeline stages (0 = the scenario's)")
	f.IntVar(&o.nodes, "nodes", 0, "nodes (0 = the scenario's)")
	f.IntVar(&o.spares, "spares", -1, "nodes without ranks, for restarts (-1 = the scenario's)")
	f.IntVar(&o.iterations, "iterations", 0, "iterations (0 = the scenario's)")
	f.BoolVar(
		&o.hold,
		"hold",
		true,
		"with a console: a shipped scenario's faults last until an action is decided, the job until you leave; not with --iterations or --report",
	)
	f.BoolVar(&o.headless, "headless", false, "no console, also on a terminal")
	f.StringVar(
		&o.approve,
		"approve",
		"",
		"what acts without a person: never, s2, s3 or all (default: the scenario's policy, else never on a terminal, s2 without)",
	)
	f.StringVar(&o.report, "report", "", "write the report to this file (JSON)")
	f.StringVar(&o.journal, "journal", "",
		"without a console: copy the engine's journal to this file at the end")
	f.StringVar(&o.record, "record", "", "record what a console receives to this file, for falcon replay")
	f.Int64Var(&o.seed, "seed", 1, "seed of weights and data")
	f.StringVar(&o.hook, "hook", "on",
		"on; plugin to watch the job by NCCL's profiler plug-in instead, which can't hold it; or off")
	f.StringVar(&o.marks, "marks", "on", "on, or off to let the agents infer iterations from the calls alone")
	f.StringVar(&o.adapter, "adapter", "on",
		"on, or off for a job that reports nothing and obeys no orders: recoveries then restart it whole")
	f.BoolVar(&o.unpaced, "unpaced", false, "no modelled time: as fast as this machine goes")
	f.StringVar(&o.theme, "theme", "", "console theme")
	f.BoolVar(&o.ascii, "ascii", false, "console without Unicode blocks")
	o.reader.declareFlag(f)
	prefsFlag(c, &o.prefs)
	f.StringVar(
		&o.train,
		"train",
		"",
		"the command line of a rank in place of the lab's trainer, such as 'python3 train.py', on emulated GPUs: real PyTorch, and kernels that take their time and compute control data alone",
	)
	f.StringVar(
		&o.trainPython,
		"train-python",
		"",
		"with --train: the interpreter whose PyTorch the command runs (default: the one that the line or its script names, else python3)",
	)
	f.Float64Var(&o.gflops, "gpu-gflops", defaultGflops,
		"with --train: operations per second of an emulated GPU, in 10^9")
	f.BoolVar(&o.noRef, "no-reference", false, "skip the undisturbed reference run behind the report")
	return c
}

// loadScenario applies the flags over the scenario and judges the result.
func loadScenario(o labOptions) (lab.Scenario, error) {
	sc, err := lab.Load(o.scenario)
	if err != nil {
		if errors.Is(err, lab.ErrScenario) {
			return sc, didYouMean(
				fmt.Errorf("%w: %w", errUsage, err),
				o.scenario,
				lab.Names(),
			)
		}
		return sc, err
	}
	for _, set := range []struct {
		from int
		to   *int
	}{
		{o.tp, &sc.Layout.TP},
		{o.dp, &sc.Layout.DP},
		{o.pp, &sc.Layout.PP},
		{o.nodes, &sc.Nodes},
		{o.iterations, &sc.Iterations},
	} {
		if set.from != 0 {
			*set.to = set.from
		}
	}
	if o.spares >= 0 {
		sc.Spares = o.spares
	}
	if err := sc.Validate(); err != nil {
		return sc, fmt.Errorf("%w: %w", errUsage, err)
	}
	return sc, nil
}

func labInjectCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "inject",
		Short:   "Inject a fault into the running lab",
		Example: "  falcon lab inject gpu n1.g0 --clock 0.5 --for 60s",
	}
	c.AddCommand(
		injectFault(
			"gpu NODE.GPU",
			"Slow one GPU for heat",
			"clock",
			"  falcon lab inject gpu n1.g0 --clock 0.5 --for 60s",
			func(target string, v float64) lab.Event {
				return lab.Event{GPU: target, Clock: v}
			},
		),
		injectFault(
			"link A-B",
			"Narrow the link between two nodes",
			"bandwidth",
			"  falcon lab inject link n1-n2 --bandwidth 0.2",
			func(target string, v float64) lab.Event {
				return lab.Event{Link: target, Bandwidth: v}
			},
		),
		injectFault(
			"cpu NODE",
			"Starve the ranks of a node of CPU",
			"share",
			"  falcon lab inject cpu n2 --share 0.1",
			func(target string, v float64) lab.Event {
				return lab.Event{CPU: target, Share: v}
			},
		),
		injectWork(
			"stage STAGE",
			"Change the job's own work on one pipeline stage; no hardware is at fault",
			"  falcon lab inject stage 1 --load 2 --for 60s",
			oneTarget,
		),
		injectWork(
			"work",
			"Change the job's own work on all ranks; no hardware is at fault",
			"  falcon lab inject work --load 2",
			takesNothing,
		),
		injectSignal(
			"kill RANK|NODE|console|agent NODE",
			"Kill a rank, a whole node, the engine or a node's agent",
			"kill",
		),
		injectFreeze(),
		injectStall(),
		injectClock(),
	)
	return c
}

func injectFault(use, short, flag, example string, event func(string, float64) lab.Event) *cobra.Command {
	var value float64
	var when timing
	c := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example,
		Args:    oneTarget,
		RunE: func(c *cobra.Command, args []string) error {
			if !(value > 0 && value < 1) {
				return fmt.Errorf("%w: --%s is %v, it must lie between 0 and 1, such as 0.5",
					errUsage, flag, value)
			}
			return when.injectEvent(c, event(args[0], value))
		},
	}
	c.Flags().Float64Var(&value, flag, 0.5, "share of healthy, between 0 and 1")
	when.declareFlags(c)
	return c
}

// injectWork changes the work of one stage, or of all ranks without an argument.
func injectWork(use, short, example string, args cobra.PositionalArgs) *cobra.Command {
	var load float64
	var when timing
	c := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example,
		Args:    args,
		RunE: func(c *cobra.Command, args []string) error {
			if !(load >= 0.1 && load <= 10) {
				return fmt.Errorf("%w: --load is %v, it must be 0.1 to 10", errUsage, load)
			}
			e := lab.Event{All: load}
			if len(args) == 1 {
				stage, err := strconv.Atoi(args[0])
				if err != nil {
					return fmt.Errorf("%w: %q is no stage, give a number from 0", errUsage, args[0])
				}
				e = lab.Event{Stage: &stage, Load: load}
			}
			return when.injectEvent(c, e)
		},
	}
	c.Flags().Float64Var(&load, "load", 2, "times the usual work, 0.1 to 10")
	when.declareFlags(c)
	return c
}

// timing is how long an injected fault lasts.
type timing struct {
	span     time.Duration
	onAction string
}

func (w *timing) declareFlags(c *cobra.Command) {
	c.Flags().DurationVar(&w.span, "for", 0, "take it back after this long (0 = never)")
	c.Flags().StringVar(&w.onAction, "on-action", "",
		"S2 or S3: only while the next action of this rung holds, as a mitigation that makes things worse")
}

func (w *timing) injectEvent(c *cobra.Command, e lab.Event) error {
	e.OnAction = w.onAction
	return requestLab(c, lab.Request{Op: "inject", Event: &e, For: w.span})
}

func injectSignal(use, short, op string) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  falcon lab inject " + op + " 5",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 2 && args[0] == "agent" && op == "kill" {
				return nil
			}
			return oneTarget(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			return requestLab(c, lab.Request{
				Op:     op,
				Target: strings.Join(args, " "),
			})
		},
	}
}

// injectFreeze stops a rank or a node, for good or for a while.
func injectFreeze() *cobra.Command {
	c := injectSignal("freeze RANK|NODE", "Stop a rank or a whole node without killing it", "freeze")
	c.Example = "  falcon lab inject freeze n1 --for 8s"
	span := c.Flags().Duration("for", 0, "let it go on after this long (0 = never)")
	c.RunE = func(c *cobra.Command, args []string) error {
		return requestLab(c, lab.Request{Op: "freeze", Target: args[0], For: *span})
	}
	return c
}

// injectStall has one rank stay away from its next call.
func injectStall() *cobra.Command {
	var span time.Duration
	c := &cobra.Command{
		Use:     "stall RANK",
		Short:   "Have a rank stay in its own code, while its peers wait for it",
		Example: "  falcon lab inject stall 5 --for 30s",
		Args:    oneTarget,
		RunE: func(c *cobra.Command, args []string) error {
			return requestLab(c, lab.Request{
				Op:     "stall",
				Target: args[0],
				For:    span,
			})
		},
	}
	c.Flags().DurationVar(&span, "for", 30*time.Second, "how long")
	return c
}

// injectClock steps the engine's wall clock.
func injectClock() *cobra.Command {
	var step time.Duration
	c := &cobra.Command{
		Use:     "clock",
		Short:   "Step the wall clock that the engine sees, as when a machine's date is set",
		Example: "  falcon lab inject clock --step -30s",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			if step == 0 {
				return fmt.Errorf("%w: give --step, such as -30s or 87600h", errUsage)
			}
			return requestLab(c, lab.Request{Op: "step-clock", For: step})
		},
	}
	c.Flags().DurationVar(&step, "step", 0, "by how much, back with a minus sign")
	return c
}

var oneTarget = oneArgument("name exactly one target")

// labFlag names the lab that a command is for.
const labFlag = "lab"

// namesLab adds the flag for a lab's folder to a command and those below it.
func namesLab(c *cobra.Command) *cobra.Command {
	c.PersistentFlags().String(labFlag, "",
		"folder of the lab, as its status shows it; needed where several are running")
	return c
}

func askLab(c *cobra.Command, req lab.Request) (lab.Reply, error) {
	reply, err := lab.Ask(c.Flag(labFlag).Value.String(), req)
	if errors.Is(err, lab.ErrManyLabs) {
		if chosen, ok := askWhich("labs", lab.Running()); ok {
			return lab.Ask(chosen, req)
		}
		err = fmt.Errorf("%w: %w, with --%s", errUsage, err, labFlag)
	}
	return reply, err
}

func requestLab(c *cobra.Command, req lab.Request) error {
	reply, err := askLab(c, req)
	if err != nil {
		return err
	}
	done := "done"
	if i := reply.Status.Iteration; i > 0 { // a script without an adapter reports none
		done += "; the job is at iteration " + strconv.FormatInt(i, 10)
	}
	fmt.Fprintln(c.OutOrStdout(), done)
	return nil
}

func labStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the running lab as JSON",
		Example: "  falcon lab status",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			reply, err := askLab(c, lab.Request{Op: "status"})
			if err != nil {
				return err
			}
			return writeJSON(c.OutOrStdout(), reply.Status)
		},
	}
}

func labStopCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "stop",
		Short:   "End the running lab",
		Example: "  falcon lab stop",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			return requestLab(c, lab.Request{Op: "stop"})
		},
	}
}
