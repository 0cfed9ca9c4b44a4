package train

import (
	"slices"
	"syscall"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
)

// faultPoints are the faults that are injected into this process, each once.
type faultPoints struct {
	points   []fault.Point
	launched uint64 // generation that started this process
}

// indexOfDue is the index of the fault that is due, -1 for none.
func (f *faultPoints) indexOfDue(name string, iteration int64, rank falcon.Rank, generation uint64) int {
	return slices.IndexFunc(f.points, func(p fault.Point) bool {
		if p.Name != name || p.Iteration != iteration || p.Rank != rank {
			return false
		}
		return p.Generation == 0 && f.launched == 0 || p.Generation > 0 && p.Generation == generation
	})
}

func (f *faultPoints) takePoint(k int) fault.Point {
	p := f.points[k]
	f.points = slices.Delete(slices.Clone(f.points), k, k+1)
	return p
}

// armedFault finds the fault that is due at a point of iteration i.
func (w *worker) armedFault(name string, i int64) int {
	return w.faults.indexOfDue(name, i, w.rank, w.generation)
}

// strikeFault carries out the fault that is due at a point of iteration i, once.
// What was enqueued is left as it is.
func (w *worker) strikeFault(name string, i int64) {
	k := w.armedFault(name, i)
	if k < 0 {
		return
	}
	p := w.faults.takePoint(k)
	// nothing is left to do about it
	_ = w.cfg.Log.writeLine(faultLine{
		Fault:  name,
		Rank:   int(w.rank),
		At:     i,
		Freeze: p.Freeze,
		UnixNs: time.Now().UnixNano(),
	})
	if p.Freeze {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // can't fail for oneself
		return
	}
	killProcess()
}

// strikeWhenDone is strike once the device has done what was enqueued.
func (w *worker) strikeWhenDone(name string, i int64) {
	if w.armedFault(name, i) >= 0 && w.comms.finishWork() == nil {
		w.strikeFault(name, i)
	}
}
