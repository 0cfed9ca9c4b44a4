// Package train runs one rank of a hybrid-parallel training job: TP × DP × PP
// with the 1F1B schedule, true gradients and Adam, and orders taken at
// iteration boundaries.
//
// It guarantees that the loss and the update are those of the mean over the
// global batch, however the micro-batches are split over the replicas; that
// two runs of the same split give the same weights bit by bit; and that a
// dead peer ends the run instead of hanging it. Ranks may change places between
// processes, or go on later from a checkpoint, and the weights come out the
// same; a placement is carried out by all ranks or by none, whoever dies in it.
//
// With Park, a death ends no other rank: it leaves its iteration, parks with
// the steps of its shard that it holds, and goes on when it is ordered with whom.
// What it holds is given up only once all ranks have, and have checked, what
// they go on with; the weights come out as if nothing had happened.
// Run owns its one goroutine, the training thread. Nothing here exits the process or reads the
// environment.
package train

import (
	"errors"
	"fmt"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
	"github.com/failslow/falcon/cmd/falcon-trainer/rendezvous"
)

// Errors of a run.
var (
	ErrConfig   = errors.New("trainer: bad configuration")
	ErrPeer     = errors.New("trainer: a peer is gone")
	ErrLate     = errors.New("trainer: the ranks did not meet")
	ErrDiverged = errors.New("trainer: the loss is lost")
)

// Config is one rank's job.
type Config struct {
	Layout       falcon.Layout
	Shape        model.Shape
	MicroBatches int // per replica at the start
	GlobalBatch  int // micro-batches of all replicas, however many there are; 0 = MicroBatches for each
	Iterations   int64
	Seed         uint64
	Rate         float64 // of Adam
	// ZeRO stage 1: groups of replicas that hold the optimizer's state once each; 0 = plain
	Instances  int
	ForwardMs  float64 // modelled, per micro-batch and stage on a healthy GPU
	BackwardMs float64
	Rendezvous rendezvous.Folder
	Evaluation Evaluation
	Checkpoint Checkpoint
	State      State
	Faults     Faults        // injected, for tests
	Points     []fault.Point // likewise
	Park       bool          // where a peer dies, wait to rejoin instead of ending
	Join       bool          // this process takes part in a job that others have begun: it parks first
	Generation uint64        // of the launch that started this process, 0 = by none
	NoAdapter  bool          // make no call of falcon_job.h, as frameworks without an adapter
	Marks      bool          // mark for the hook where iterations begin and end
	Rank       falcon.Rank   // at the start
	LocalRank  int           // GPU index on this node
	Log        *Log
}

// splitUnit is what every replica's number of micro-batches must be a multiple of.
func (c Config) splitUnit() int {
	if c.Shape.VirtualStages() > 1 {
		return c.Layout.PP
	}
	return 1
}

// firstSplit is what each replica begins with.
func (c Config) firstSplit() model.Split {
	if c.GlobalBatch > 0 {
		return falcon.Deal(c.GlobalBatch, c.Layout.DP, c.splitUnit())
	}
	return model.Even(c.Layout.DP, c.MicroBatches)
}

// optimizerSlices is how the optimizer's state is spread over the replicas.
func (c Config) optimizerSlices() model.Slices {
	return model.Slices{DP: c.Layout.DP, Instances: c.Instances}
}

// Validate reports, in one sentence, why the job can't be run.
func (c Config) Validate() error {
	if err := c.Shape.Validate(c.Layout); err != nil {
		return err
	}
	if err := c.optimizerSlices().Validate(); err != nil {
		return err
	}
	if c.Park && !c.Marks {
		return fmt.Errorf("%w: who parks is asked how far it is; give --marks on with --park", ErrConfig)
	}
	if c.Join && !c.Park {
		return fmt.Errorf("%w: this process was started to join a job; give it --park, as the others have",
			ErrConfig)
	}
	if c.MicroBatches < 1 || c.Iterations < 0 {
		return fmt.Errorf("%w: %d micro-batches (at least 1), %d iterations (at least 0)",
			ErrConfig, c.MicroBatches, c.Iterations)
	}
	if c.MicroBatches%c.splitUnit() != 0 {
		return fmt.Errorf("%w: %d micro-batches over %d interleaved stages; give a multiple of %d",
			ErrConfig, c.MicroBatches, c.splitUnit(), c.splitUnit())
	}
	b := c.GlobalBatch
	if b < 0 || b > 0 && (b%c.splitUnit() != 0 || b < c.Layout.DP*c.splitUnit()) {
		return fmt.Errorf(
			"%w: a global batch of %d micro-batches over %d replicas; give each at least %d, and a multiple of it in all",
			ErrConfig, b, c.Layout.DP, c.splitUnit(),
		)
	}
	if err := errors.Join(
		c.Evaluation.validate(c.splitUnit()),
		c.Checkpoint.validate(),
		c.State.validate(),
		c.Faults.validate(),
	); err != nil {
		return err
	}
	if c.ForwardMs <= 0 || c.BackwardMs < 2*c.ForwardMs {
		return fmt.Errorf(
			"%w: a backward pass of %g ms after a forward pass of %g ms; it has twice the work, so give at least %g",
			ErrConfig, c.BackwardMs, c.ForwardMs, 2*c.ForwardMs,
		)
	}
	if int(c.Rank) < 0 || int(c.Rank) >= c.Layout.World() {
		return fmt.Errorf("%w: rank %d is outside the %d ranks of %v",
			ErrConfig, c.Rank, c.Layout.World(), c.Layout)
	}
	return nil
}

// PeakFlops is the modelled speed of one GPU, in FLOP/s, at which a forward
// pass of one micro-batch takes ForwardMs: the emulated GPU's peak_flops. The
// matrix products are small, so that a CPU can do them for real; the pace is
// what is modelled.
func (c Config) PeakFlops() float64 {
	return model.NewShard(c.Shape, c.Layout, 0).ForwardFlops() / (c.ForwardMs / 1e3)
}

// extraBackwardFlops is what the backward pass of one model chunk is charged
// beyond its matrix products, which take twice ForwardMs by themselves.
func (c Config) extraBackwardFlops() float64 {
	return (c.BackwardMs - 2*c.ForwardMs) / 1e3 * c.PeakFlops() / float64(c.Shape.VirtualStages())
}
