package train

import (
	"slices"
	"syscall"
	"time"

	"github.com/failslow/falcon/cmd/falcon-trainer/fault"
)

// armed finds the fault that is due at a point of iteration i.
func (w *worker) armed(name string, i int64) int {
	return slices.IndexFunc(w.cfg.Points, func(p fault.Point) bool {
		if p.Name != name || p.Iteration != i || p.Rank != w.rank {
			return false
		}
		return p.Generation == 0 && w.cfg.Generation == 0 || p.Generation > 0 && p.Generation == w.generation
	})
}

// strike carries out the fault that is due at a point of iteration i, once.
// What was enqueued is left as it is.
func (w *worker) strike(name string, i int64) {
	k := w.armed(name, i)
	if k < 0 {
		return
	}
	p := w.cfg.Points[k]
	w.cfg.Points = slices.Delete(slices.Clone(w.cfg.Points), k, k+1)
	_ = w.cfg.Log.line(faultLine{Fault: name, Rank: int(w.rank), At: i, Freeze: p.Freeze, UnixNs: time.Now().UnixNano()}) // nothing is left to do about it
	if p.Freeze {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // can't fail for oneself
		return
	}
	kill()
}

// strikeDone is strike once the device has done what was enqueued.
func (w *worker) strikeDone(name string, i int64) {
	if w.armed(name, i) >= 0 && w.wait() == nil {
		w.strike(name, i)
	}
}
