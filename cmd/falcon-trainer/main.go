// Command falcon-trainer trains a small residual MLP with tensor, data and
// pipeline parallelism through the NCCL, CUDA and cuBLAS interfaces: the job
// that the lab and the tests watch.
//
// As `falcon-trainer` it is one rank, given by RANK, WORLD_SIZE and
// LOCAL_RANK; as `falcon-trainer local` it starts all ranks of a job on this
// machine. It exits 0 when the job is done, 1 on a failure of the work, 2 on
// wrong use, 3 when a peer died, 143 on SIGTERM. With --park, under the hook, a
// peer's death ends no other rank: the others park until they are ordered to rejoin,
// and FALCON_JOIN=1 with the new FALCON_GENERATION makes a process that takes the
// dead one's place.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/version"
	"github.com/failslow/falcon/cmd/falcon-trainer/adapter"
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/train"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
	exitPeer   = 3
	exitSignal = 128 // plus the signal's number
)

// Errors that choose the exit code.
var (
	errUsage = errors.New("trainer: wrong use")
	errTerm  = errors.New("trainer: ended by SIGTERM")
	errInt   = errors.New("trainer: interrupted")
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() { // lives as long as the process
		if <-signals == syscall.SIGTERM {
			cancel(errTerm)
		} else {
			cancel(errInt)
		}
	}()
	err := newCommand().ExecuteContext(ctx)
	if err != nil {
		// One prefix is enough for a sentence.
		msg := strings.ReplaceAll(err.Error(), "trainer: ", "")
		fmt.Fprintf(os.Stderr, "falcon-trainer%s: %s\n", rankPrefix(), msg)
	}
	os.Exit(exitCodeOf(err))
}

// rankPrefix names the rank in messages, for many ranks may share one terminal.
func rankPrefix() string {
	if r := os.Getenv("RANK"); r != "" {
		return " rank " + r
	}
	return ""
}

func exitCodeOf(err error) int {
	var child *rankError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &child):
		return child.code
	case errors.Is(err, errTerm):
		return exitSignal + int(syscall.SIGTERM)
	case errors.Is(err, errInt):
		return exitSignal + int(syscall.SIGINT)
	case errors.Is(err, train.ErrPeer):
		return exitPeer
	case errors.Is(err, errUsage), errors.Is(err, train.ErrConfig), errors.Is(err, model.ErrShape),
		errors.Is(err, fault.Err), errors.Is(err, falcon.ErrLayout):
		return exitUsage
	}
	return exitFailed
}

// options are the flags as given.
type options struct {
	job             train.Config // what a flag sets as it is
	seed            int64
	zero, instances int
	faults          []string
	marks           string
	noAdapter       bool
	emulated        emulatedRates
	log             string
	printPeak       bool
}

// emulatedRates are the flags of the emulated state and storage, in the units of the flags.
type emulatedRates struct {
	stateMB, copyGBs, diskMBs, checkpointMs float64
}

// rejectArgs makes an argument wrong use.
func rejectArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: unexpected argument %q; see --help", errUsage, args[0])
	}
	return nil
}

func newCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "falcon-trainer",
		Short: "Train a small model with tensor, data and pipeline parallelism, as one rank of a job",
		Long: "Train a small residual MLP with TP × DP × PP (1F1B, plain or interleaved) through the NCCL, CUDA and cuBLAS interfaces.\n" +
			"One process is one rank, given by RANK, WORLD_SIZE and LOCAL_RANK; `falcon-trainer local` starts them all.",
		Example:       "  RANK=0 WORLD_SIZE=1 falcon-trainer --iterations 20",
		Args:          rejectArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.runRank(c.Context())
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see --help", errUsage, err)
	})
	o.declareFlags(c)
	c.AddCommand(localCommand(&o), versionCommand())
	return c
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and that of the hook's interface which this trainer uses",
		Example: "  falcon-trainer version",
		Args:    rejectArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			formats := []version.Format{{Name: "adapter", Number: adapter.Version, Oldest: 1}}
			_, err := fmt.Fprint(c.OutOrStdout(), version.Describe("falcon-trainer", formats))
			return err
		},
	}
}

func (o *options) declareFlags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.IntVar(&o.job.Layout.TP, "tp", 1, "tensor-parallel ranks")
	f.IntVar(&o.job.Layout.DP, "dp", 1, "data-parallel replicas")
	f.IntVar(&o.job.Layout.PP, "pp", 1, "pipeline stages")
	f.IntVar(&o.job.Shape.Hidden, "hidden", 96, "width of the model")
	f.IntVar(&o.job.Shape.FFN, "ffn", 0, "width inside a layer (default twice --hidden)")
	f.IntVar(&o.job.Shape.Layers, "layers", 0,
		"layers of the whole model (default 1 per stage, or per virtual stage)")
	f.IntVar(&o.job.Shape.Batch, "batch", 8, "samples per micro-batch")
	f.IntVar(&o.job.MicroBatches, "micro-batches", 8, "micro-batches per replica and iteration at the start")
	f.IntVar(
		&o.job.GlobalBatch,
		"global-batch",
		0,
		"micro-batches per iteration of all replicas together, shared out over as many as there are (0 = --micro-batches for each)",
	)
	f.Int64Var(&o.job.Iterations, "iterations", 100, "iterations to train")
	f.Int64Var(&o.seed, "seed", 1, "seed of weights and data")
	f.Float64Var(&o.job.Rate, "rate", 2e-3, "learning rate")
	f.IntVar(&o.zero, "zero", 0, "ZeRO stage: 0 plain data parallelism, 1 a sharded optimizer")
	f.IntVar(&o.instances, "zero-instances", 1,
		"with --zero 1: groups of replicas that each hold the whole optimizer state once; a divisor of --dp")
	f.BoolVar(
		&o.job.Park,
		"park",
		false,
		"where a peer dies or the agent suspends the job: leave the iteration and wait to rejoin it, instead of ending; needs the hook",
	)
	f.StringArrayVar(
		&o.faults,
		"fault",
		nil,
		"injected fault: POINT@ITERATION:RANK[:kill|freeze][/GENERATION]; POINT is "+fault.Names()+
			"; repeatable",
	)
	f.IntVar(&o.job.Shape.Chunks, "virtual-stages", 1,
		"model chunks per pipeline stage, run interleaved; --micro-batches must then be a multiple of --pp")
	f.Int64Var(&o.job.Evaluation.Every, "eval-every", 0,
		"iterations from one evaluation on a held-out batch to the next (0 = none)")
	f.IntVar(&o.job.Evaluation.MicroBatches, "eval-micro-batches", 0,
		"micro-batches per replica of an evaluation (default as --micro-batches)")
	f.Int64Var(&o.job.Checkpoint.Every, "checkpoint-every", 0,
		"iterations from one checkpoint to the next (0 = none)")
	f.StringVar(&o.job.Checkpoint.Folder, "checkpoint-dir", "",
		"folder for checkpoints; the newest two are kept")
	f.BoolVar(
		&o.job.Checkpoint.Resume,
		"resume",
		false,
		"go on from the newest complete checkpoint in --checkpoint-dir; plain data parallelism takes as many replicas as WORLD_SIZE makes, and with --global-batch the same samples",
	)
	f.Float64Var(
		&o.emulated.stateMB,
		"state-mb",
		0,
		"emulated state of each GPU, in MB: what dumping, swapping, storing and loading it take (default the real one's size)",
	)
	f.Float64Var(&o.emulated.copyGBs, "copy-gb-s", 0,
		"emulated copies between device and host, in GB/s (0 = they take no time)")
	f.Float64Var(&o.emulated.diskMBs, "disk-mb-s", 0,
		"emulated storage for each rank, in MB/s (0 = as fast as the real one)")
	f.StringVar(
		&o.job.Faults.Fail,
		"fail-step",
		"",
		"injected failure: the step (pause, dump, swap, restore) of this process's first placement that fails once it is done",
	)
	f.StringVar(
		&o.job.Faults.Die,
		"die-step",
		"",
		"injected death: the step of a placement at whose beginning this process kills itself; or vote, commit",
	)
	f.Float64Var(&o.emulated.checkpointMs, "checkpoint-ms", 0,
		"emulated storage: writing a checkpoint takes at least this long, in ms")
	f.Float64Var(&o.job.ForwardMs, "fwd-ms", 5, "modelled forward pass per micro-batch and stage, in ms")
	f.Float64Var(&o.job.BackwardMs, "bwd-ms", 0, "modelled backward pass, in ms (default twice --fwd-ms)")
	f.StringVar((*string)(&o.job.Rendezvous), "rendezvous", "", "empty folder through which the ranks meet")
	f.BoolVar(&o.noAdapter, "no-adapter", false,
		"report nothing to the hook, as a framework without an adapter")
	f.StringVar(&o.marks, "marks", "on", "tell the hook where iterations begin and end: on or off")
	f.StringVar(
		&o.log,
		"log",
		"",
		"where the JSON lines go: a file, with {rank} for the rank, or unix:PATH for a listening socket (default standard output)",
	)
	f.BoolVar(&o.printPeak, "print-peak", false, "print the FLOP/s at which --fwd-ms holds, and exit")
}

// jobConfig turns flags and environment into one rank's job, without its log.
func (o *options) jobConfig() (train.Config, error) {
	c := o.job
	c.Seed = uint64(o.seed)
	c.Marks = o.marks == "on" && !o.noAdapter
	c.Instances = o.zero * o.instances
	c.NoAdapter = o.noAdapter
	c.BackwardMs = cmp.Or(c.BackwardMs, 2*c.ForwardMs)
	c.Shape.FFN = cmp.Or(c.Shape.FFN, 2*c.Shape.Hidden)
	c.Shape.Layers = cmp.Or(c.Shape.Layers, c.Layout.PP*c.Shape.Chunks)
	c.Evaluation.MicroBatches = cmp.Or(c.Evaluation.MicroBatches, c.MicroBatches)
	c.Checkpoint.Least = time.Duration(o.emulated.checkpointMs * float64(time.Millisecond))
	c.State = train.State{
		Bytes: o.emulated.stateMB * 1e6,
		Copy:  o.emulated.copyGBs * 1e9,
		Disk:  o.emulated.diskMBs * 1e6,
	}
	switch {
	case c.Shape.Chunks < 1:
		return c, fmt.Errorf("%w: --virtual-stages is %d, give at least 1", errUsage, c.Shape.Chunks)
	case o.marks != "on" && o.marks != "off":
		return c, fmt.Errorf("%w: --marks is %q, give on or off", errUsage, o.marks)
	case o.zero != 0 && o.zero != 1:
		return c, fmt.Errorf("%w: --zero is %d, give 0 or 1", errUsage, o.zero)
	case o.instances != 1 && o.zero == 0 || o.instances < 1:
		return c, fmt.Errorf(
			"%w: --zero-instances is %d, give at least 1, and more than 1 only with --zero 1",
			errUsage, o.instances,
		)
	}
	for _, s := range o.faults {
		p, err := fault.Parse(s)
		if err != nil {
			return c, err
		}
		c.Points = append(c.Points, p)
	}
	return c, c.Validate()
}

func (o *options) runRank(ctx context.Context) error {
	c, err := o.jobConfig()
	if err != nil {
		return err
	}
	if o.printPeak {
		_, err := fmt.Println(strconv.FormatFloat(c.PeakFlops(), 'f', 0, 64))
		return err
	}
	if err := o.readEnvironment(&c); err != nil {
		return err
	}
	out, err := o.openLog(c.Rank)
	if err != nil {
		return err
	}
	c.Log = train.NewLog(out)
	// One thread works and waits in C; a second processor would only keep the
	// Go runtime looking for work, in every rank.
	runtime.GOMAXPROCS(1)
	return errors.Join(train.Run(ctx, c), out.Close())
}

// readEnvironment reads from the environment which rank this is.
func (o *options) readEnvironment(c *train.Config) error {
	rank, err1 := environmentNumber("RANK")
	world, err2 := environmentNumber("WORLD_SIZE")
	local, err3 := environmentNumber("LOCAL_RANK")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	generation, err1 := environmentNumber("FALCON_GENERATION")
	join, err2 := environmentNumber("FALCON_JOIN")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	n := o.job.Layout.TP * o.job.Layout.PP
	if (o.job.Checkpoint.Resume || join == 1) &&
		o.zero == 0 &&
		world > 0 &&
		world%n == 0 {
		o.job.Layout.DP = world / n // a replica may have been dropped, or added
		c.Layout.DP = o.job.Layout.DP
	}
	if want := o.job.Layout.World(); max(world, 1) != want {
		return fmt.Errorf(
			"%w: WORLD_SIZE is %d, but tp %d × dp %d × pp %d is %d ranks; make them agree or use `falcon-trainer local`",
			errUsage, max(world, 1), o.job.Layout.TP, o.job.Layout.DP, o.job.Layout.PP, want,
		)
	}
	if o.job.Layout.World() > 1 && o.job.Rendezvous == "" {
		return fmt.Errorf("%w: %d ranks need --rendezvous, an empty folder to meet in",
			errUsage, o.job.Layout.World())
	}
	c.Rank = falcon.Rank(rank)
	c.LocalRank = local
	c.Generation = uint64(generation)
	c.Join = join == 1
	return c.Validate()
}

// environmentNumber reads a variable of the launcher; 0 when it is unset.
func environmentNumber(name string) (int, error) {
	s := os.Getenv(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %s is %q, a number from 0 on was wanted", errUsage, name, s)
	}
	return n, nil
}

// openLog opens where the lines go. A socket gives way after a while to a
// reader that does not read: then the run ends, rather than hang unseen.
func (o *options) openLog(r falcon.Rank) (io.WriteCloser, error) {
	if o.log == "" {
		return os.Stdout, nil
	}
	if path, socket := strings.CutPrefix(o.log, unixMark); socket {
		conn, err := net.DialTimeout("unix", path, logWithin)
		if err != nil {
			return nil, fmt.Errorf("trainer: --log: nobody listens: %w", err)
		}
		return patient{conn}, nil
	}
	path := strings.ReplaceAll(o.log, rankMark, strconv.Itoa(int(r)))
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
}

// unixMark starts a --log that is a socket.
const unixMark = "unix:"

// logWithin bounds the wait for a socket's other end.
const logWithin = 10 * time.Second

// patient is a connection whose reader may be slow, but not for ever.
type patient struct{ net.Conn }

func (p patient) Write(b []byte) (int, error) {
	if err := p.SetWriteDeadline(time.Now().Add(logWithin)); err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}
