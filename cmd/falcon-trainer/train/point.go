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

// find is the index of the fault that is due, -1 for none.
func (f *faultPoints) find(name string, iteration int64, rank falcon.Rank, generation uint64) int {
	return slices.IndexFunc(f.points, func(p fault.Point) bool {
		if p.Name != name || p.Iteration != iteration || p.Rank != rank {
			return false
		}
		return p.Generation == 0 && f.launched == 0 || p.Generation > 0 && p.Generation == generation
	})
}

func (f *faultPoints) take(k int) fault.Point {
	p := f.points[k]
	f.points = slices.Delete(slices.Clone(f.points), k, k+1)
	return p
}

// armed finds the fault that is due at a point of iteration i.
func (w *worker) armed(name string, i int64) int {
	return w.faults.find(name, i, w.rank, w.generation)
}

// strike carries out the fault that is due at a point of iteration i, once.
// What was enqueued is left as it is.
func (w *worker) strike(name string, i int64) {
	k := w.armed(name, i)
	if k < 0 {
		return
	}
	p := w.faults.take(k)
	_ = w.cfg.Log.line(faultLine{Fault: name, Rank: int(w.rank), At: i, Freeze: p.Freeze, UnixNs: time.Now().UnixNano()}) // nothing is left to do about it
	if p.Freeze {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // can't fail for oneself
		return
	}
	kill()
}

// strikeDone is strike once the device has done what was enqueued.
func (w *worker) strikeDone(name string, i int64) {
	if w.armed(name, i) >= 0 && w.comms.finish() == nil {
		w.strike(name, i)
	}
}
