// Command falcon-trainer trains a small residual MLP with tensor, data and
// pipeline parallelism through the NCCL, CUDA and cuBLAS interfaces: the job
// that the lab and the tests watch.
//
// As `falcon-trainer` it is one rank, told which by RANK, WORLD_SIZE and
// LOCAL_RANK; as `falcon-trainer local` it starts all ranks of a job on this
// machine. It exits 0 when the job is done, 1 on a failure of the work, 2 on
// wrong use, 3 when a peer died, 143 on SIGTERM. With --park, under the hook, a
// peer's death ends nobody else: the others park until they are told to rejoin,
// and FALCON_JOIN=1 with the new FALCON_GENERATION makes a process that takes the
// dead one's place.
package main

import (
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
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/rendezvous"
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
	err := command().ExecuteContext(ctx)
	if err != nil {
		// One prefix is enough for a sentence.
		msg := strings.ReplaceAll(err.Error(), "trainer: ", "")
		fmt.Fprintf(os.Stderr, "falcon-trainer%s: %s\n", who(), msg)
	}
	os.Exit(exitCode(err))
}

// who names the rank in messages, for many ranks may share one terminal.
func who() string {
	if r := os.Getenv("RANK"); r != "" {
		return " rank " + r
	}
	return ""
}

func exitCode(err error) int {
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
	case errors.Is(err, errUsage), errors.Is(err, train.ErrConfig), errors.Is(err, model.ErrShape), errors.Is(err, fault.Err), errors.Is(err, falcon.ErrLayout):
		return exitUsage
	}
	return exitFailed
}

// options are the flags as given.
type options struct {
	layout       falcon.Layout
	hidden, ffn  int
	layers       int
	batch        int
	microBatches int
	globalBatch  int
	iterations   int64
	seed         int64
	rate         float64
	zero         int
	instances    int
	park         bool
	points       []string
	forwardMs    float64
	backwardMs   float64
	rendezvous   string
	marks        string
	log          string
	printPeak    bool
	virtual      int
	evalEvery    int64
	evalMicro    int
	saveEvery    int64
	saveFolder   string
	saveMs       float64
	resume       bool
	stateMB      float64
	copyGBs      float64
	diskMBs      float64
	failStep     string
	dieStep      string
}

// noArgs makes a stray word wrong use.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: unexpected argument %q; see --help", errUsage, args[0])
	}
	return nil
}

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "falcon-trainer",
		Short: "Train a small model with tensor, data and pipeline parallelism, as one rank of a job",
		Long: "Train a small residual MLP with TP × DP × PP (1F1B, plain or interleaved) through the NCCL, CUDA and cuBLAS interfaces.\n" +
			"One process is one rank, told which by RANK, WORLD_SIZE and LOCAL_RANK; `falcon-trainer local` starts them all.",
		Example:       "  RANK=0 WORLD_SIZE=1 falcon-trainer --iterations 20",
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return o.runRank(c.Context()) },
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w; see --help", errUsage, err) })
	o.declare(c)
	c.AddCommand(localCommand(&o))
	return c
}

func (o *options) declare(c *cobra.Command) {
	f := c.PersistentFlags()
	f.IntVar(&o.layout.TP, "tp", 1, "tensor-parallel ranks")
	f.IntVar(&o.layout.DP, "dp", 1, "data-parallel replicas")
	f.IntVar(&o.layout.PP, "pp", 1, "pipeline stages")
	f.IntVar(&o.hidden, "hidden", 96, "width of the model")
	f.IntVar(&o.ffn, "ffn", 0, "width inside a layer (default twice --hidden)")
	f.IntVar(&o.layers, "layers", 0, "layers of the whole model (default 1 per stage, or per virtual stage)")
	f.IntVar(&o.batch, "batch", 8, "samples per micro-batch")
	f.IntVar(&o.microBatches, "micro-batches", 8, "micro-batches per replica and iteration at the start")
	f.IntVar(&o.globalBatch, "global-batch", 0, "micro-batches per iteration of all replicas together, shared out over as many as there are (0 = --micro-batches for each)")
	f.Int64Var(&o.iterations, "iterations", 100, "iterations to train")
	f.Int64Var(&o.seed, "seed", 1, "seed of weights and data")
	f.Float64Var(&o.rate, "rate", 2e-3, "learning rate")
	f.IntVar(&o.zero, "zero", 0, "ZeRO stage: 0 plain data parallelism, 1 a sharded optimizer")
	f.IntVar(&o.instances, "zero-instances", 1, "with --zero 1: groups of replicas that each hold the whole optimizer state once; a divisor of --dp")
	f.BoolVar(&o.park, "park", false, "where a peer dies or the agent suspends the job: leave the iteration and wait to rejoin it, instead of ending; needs the hook")
	f.StringArrayVar(&o.points, "fault", nil, "injected fault: POINT@ITERATION:RANK[:kill|freeze][/GENERATION]; POINT is "+fault.Names()+"; repeatable")
	f.IntVar(&o.virtual, "virtual-stages", 1, "model chunks per pipeline stage, run interleaved; --micro-batches must then be a multiple of --pp")
	f.Int64Var(&o.evalEvery, "eval-every", 0, "iterations from one evaluation on a held-out batch to the next (0 = none)")
	f.IntVar(&o.evalMicro, "eval-micro-batches", 0, "micro-batches per replica of an evaluation (default as --micro-batches)")
	f.Int64Var(&o.saveEvery, "checkpoint-every", 0, "iterations from one checkpoint to the next (0 = none)")
	f.StringVar(&o.saveFolder, "checkpoint-dir", "", "folder for checkpoints; the newest two are kept")
	f.BoolVar(&o.resume, "resume", false, "go on from the newest complete checkpoint in --checkpoint-dir; plain data parallelism takes as many replicas as WORLD_SIZE makes, and with --global-batch the same samples")
	f.Float64Var(&o.stateMB, "state-mb", 0, "emulated state of each GPU, in MB: what dumping, swapping, storing and loading it take (default the real one's size)")
	f.Float64Var(&o.copyGBs, "copy-gb-s", 0, "emulated copies between device and host, in GB/s (0 = they take no time)")
	f.Float64Var(&o.diskMBs, "disk-mb-s", 0, "emulated storage for each rank, in MB/s (0 = as fast as the real one)")
	f.StringVar(&o.failStep, "fail-step", "", "injected failure: the step (pause, dump, swap, restore) of this process's first placement that fails once it is done")
	f.StringVar(&o.dieStep, "die-step", "", "injected death: the step of a placement at whose beginning this process kills itself; or vote, commit")
	f.Float64Var(&o.saveMs, "checkpoint-ms", 0, "emulated storage: writing a checkpoint takes at least this long, in ms")
	f.Float64Var(&o.forwardMs, "fwd-ms", 5, "modelled forward pass per micro-batch and stage, in ms")
	f.Float64Var(&o.backwardMs, "bwd-ms", 0, "modelled backward pass, in ms (default twice --fwd-ms)")
	f.StringVar(&o.rendezvous, "rendezvous", "", "empty folder through which the ranks meet")
	f.StringVar(&o.marks, "marks", "on", "tell the hook where iterations begin and end: on or off")
	f.StringVar(&o.log, "log", "", "where the JSON lines go: a file, with {rank} for the rank, or unix:PATH for a listening socket (default standard output)")
	f.BoolVar(&o.printPeak, "print-peak", false, "print the FLOP/s at which --fwd-ms holds, and exit")
}

// config turns flags and environment into one rank's job, without its log.
func (o *options) config() (train.Config, error) {
	c := train.Config{
		Layout: o.layout, MicroBatches: o.microBatches, Iterations: o.iterations, Seed: uint64(o.seed), Rate: o.rate,
		ForwardMs: o.forwardMs, BackwardMs: or(o.backwardMs, 2*o.forwardMs), Marks: o.marks == "on", Instances: o.zero * o.instances,
		Park: o.park, GlobalBatch: o.globalBatch,
		Rendezvous: rendezvous.Folder(o.rendezvous),
		Shape: model.Shape{
			Hidden: o.hidden, FFN: or(o.ffn, 2*o.hidden), Layers: or(o.layers, o.layout.PP*o.virtual), Batch: o.batch,
			Chunks: o.virtual,
		},
		Evaluation: train.Evaluation{Every: o.evalEvery, MicroBatches: or(o.evalMicro, o.microBatches)},
		Checkpoint: train.Checkpoint{
			Every: o.saveEvery, Folder: o.saveFolder, Least: time.Duration(o.saveMs * float64(time.Millisecond)),
			Resume: o.resume,
		},
		State:  train.State{Bytes: o.stateMB * 1e6, Copy: o.copyGBs * 1e9, Disk: o.diskMBs * 1e6},
		Faults: train.Faults{Fail: o.failStep, Die: o.dieStep},
	}
	if o.virtual < 1 {
		return c, fmt.Errorf("%w: --virtual-stages is %d, give at least 1", errUsage, o.virtual)
	}
	if o.marks != "on" && o.marks != "off" {
		return c, fmt.Errorf("%w: --marks is %q, give on or off", errUsage, o.marks)
	}
	if o.zero != 0 && o.zero != 1 {
		return c, fmt.Errorf("%w: --zero is %d, give 0 or 1", errUsage, o.zero)
	}
	if o.instances != 1 && o.zero == 0 || o.instances < 1 {
		return c, fmt.Errorf("%w: --zero-instances is %d, give at least 1, and more than 1 only with --zero 1", errUsage, o.instances)
	}
	for _, s := range o.points {
		p, err := fault.Parse(s)
		if err != nil {
			return c, err
		}
		c.Points = append(c.Points, p)
	}
	return c, c.Validate()
}

func or[T int | float64](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}

func (o *options) runRank(ctx context.Context) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	if o.printPeak {
		_, err := fmt.Println(strconv.FormatFloat(c.PeakFlops(), 'f', 0, 64))
		return err
	}
	if err := o.place(&c); err != nil {
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

// place reads from the environment which rank this is.
func (o *options) place(c *train.Config) error {
	rank, err1 := number("RANK")
	world, err2 := number("WORLD_SIZE")
	local, err3 := number("LOCAL_RANK")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	generation, err1 := number("FALCON_GENERATION")
	join, err2 := number("FALCON_JOIN")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if n := o.layout.TP * o.layout.PP; (o.resume || join == 1) && o.zero == 0 && world > 0 && world%n == 0 {
		o.layout.DP = world / n // a replica may have been dropped, or added
		c.Layout.DP = o.layout.DP
	}
	if want := o.layout.World(); max(world, 1) != want {
		return fmt.Errorf("%w: WORLD_SIZE is %d, but tp %d × dp %d × pp %d is %d ranks; make them agree or use `falcon-trainer local`",
			errUsage, max(world, 1), o.layout.TP, o.layout.DP, o.layout.PP, want)
	}
	if o.layout.World() > 1 && o.rendezvous == "" {
		return fmt.Errorf("%w: %d ranks need --rendezvous, an empty folder to meet in", errUsage, o.layout.World())
	}
	c.Rank, c.LocalRank, c.Generation, c.Join = falcon.Rank(rank), local, uint64(generation), join == 1
	return c.Validate()
}

// number reads a variable of the launcher; 0 when it is unset.
func number(name string) (int, error) {
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
