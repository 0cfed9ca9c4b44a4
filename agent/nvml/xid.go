package nvml

import (
	"strconv"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	xidWaitMs  = 1000        // one wait for an event; Close waits at most this long for it
	xidRestMax = time.Second // after a failed wait, so that a broken library is not spun on
)

// watchXids counts XID errors, the driver's own reports of GPU trouble.
func (p *Prober) watchXids() {
	set, ret := p.lib.EventSetCreate()
	if ret != gonvml.SUCCESS {
		return
	}
	defer func() { _ = set.Free() }()
	watched := 0
	for _, g := range p.gpus {
		if g.handle.RegisterEvents(gonvml.EventTypeXidCriticalError, set) == gonvml.SUCCESS {
			watched++
		}
	}
	for watched > 0 && !p.sleepOrStop(0) {
		p.awaitXidEvents(set)
	}
}

func (p *Prober) awaitXidEvents(set gonvml.EventSet) {
	e, ret := set.Wait(xidWaitMs)
	switch ret {
	case gonvml.SUCCESS:
		p.countXid(e)
	case gonvml.ERROR_TIMEOUT:
	default:
		p.sleepOrStop(xidRestMax)
	}
}

func (p *Prober) countXid(e gonvml.EventData) {
	for i, g := range p.gpus {
		if g.handle != e.Device {
			continue
		}
		code := clamp32(e.EventData)
		p.mu.Lock()
		p.xids[i].count++
		p.xids[i].last = code
		p.mu.Unlock()
		p.reportXid(i, code, p.now())
	}
}

// sleepOrStop waits up to d for Close.
func (p *Prober) sleepOrStop(d time.Duration) bool {
	if d == 0 {
		select {
		case <-p.stop:
			return true
		default:
			return false
		}
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.stop:
		return true
	case <-t.C:
		return false
	}
}

func formatInt(n int) string { return strconv.Itoa(n) }
