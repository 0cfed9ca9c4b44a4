// Package nvml reads the GPUs of one node through NVIDIA's management
// library.
//
// It guarantees that a missing, old or stalled library never takes the agent
// down: symbols are looked up before they are called, and every failure is
// in GPUReading.Err. NVML calls take a lock of the driver that training needs
// too, so a probe keeps to a budget and backs off when it is dear. Open starts
// two goroutines (the probe, and XID events where they exist); Close ends them
// and waits, at most CloseMax for one that the driver holds. A reading that the
// driver does not answer is a reading of the GPU that it hangs at (ProbeUs, Err).
//
// It must not list processes or fan speeds (milliseconds under the lock), and
// must not judge: a power cap or a low clock is reported, not explained. What the
// driver itself calls a fault (XID, uncorrectable memory errors, an action that it
// asks for) is an Event, reported once.
package nvml

import (
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/clock"
)

// Bounds of the probe.
const (
	BudgetMax = 2 * time.Millisecond // a costlier reading of one GPU doubles the period
	PeriodMax = 30 * time.Second     // the period never grows beyond this
	StallMin  = 5 * time.Second      // an unanswered reading is reported after this long
	CloseMax  = 2 * time.Second      // Close gives a held driver call this long
	OpenMax   = 10 * time.Second     // Open gives the library this long to start; it may come later
	GPUsMax   = 64                   // per node
)

const (
	libraryName = "libnvidia-ml.so.1"
	remedy      = "install the driver's " + libraryName + ", or set nvml.enabled to false"
)

// Config describes what to probe.
type Config struct {
	Node    falcon.Node
	Library string        // path or soname; empty = libnvidia-ml.so.1
	Period  time.Duration // between readings, while they are cheap
	// Event takes a GPU's own reports of faults, each once; nil = they are dropped. It is
	// called from the prober's goroutines and must not block.
	Event func(Event)
	// Now is the time of readings; nil = this process's, which never steps.
	Now func() time.Time
}

// Prober owns the library and the goroutines that call it.
type Prober struct {
	node  falcon.Node
	now   func() time.Time
	lib   gonvml.Interface
	event func(Event)
	calls symbols // the goroutine's own, as the library is loaded there

	mu      sync.Mutex
	gpus    []gpu  // set once
	why     string // why nothing can be read, empty when something can
	pace    pace
	started time.Time // of the reading of one GPU in flight, zero when none is
	at      int       // which one
	fresh   []falcon.GPUReading
	xids    []xid
	watch   []watched // by GPU; reported is guarded by mu, the rest is the probe's own

	stop chan struct{}
	done sync.WaitGroup
}

type gpu struct {
	name    falcon.Device
	handle  gonvml.Device
	maxMHz  uint32
	model   string
	monitor *monitor // nil = the GPU has no GPM; the probe's own
}

type xid struct {
	count uint64
	last  uint32
}

// Open loads the library and starts probing. It does not fail: without a
// library the first Latest returns why.
func Open(cfg Config) *Prober {
	if cfg.Library == "" {
		cfg.Library = libraryName
	}
	if err := checkLibrary(cfg.Library); err != nil {
		return &Prober{
			why:  fmt.Sprintf("nvml can't be used (%v): %s", err, remedy),
			stop: make(chan struct{}),
		}
	}
	return newProber(cfg, gonvml.New(gonvml.WithLibraryPath(cfg.Library)))
}

// checkLibrary opens the library once by itself: go-nvml would end the process on
// a file that is a library, but not NVML.
func checkLibrary(path string) error {
	lib := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := lib.Open(); err != nil {
		return err
	}
	defer func() { _ = lib.Close() }()
	if lib.Lookup("nvmlInit_v2") != nil && lib.Lookup("nvmlInit") != nil {
		return fmt.Errorf("%s is not NVML", path)
	}
	return nil
}

func newProber(cfg Config, lib gonvml.Interface) *Prober {
	p := &Prober{
		node:  cfg.Node,
		now:   cfg.Now,
		lib:   lib,
		event: cfg.Event,
		pace:  newPace(cfg.Period),
		stop:  make(chan struct{}),
	}
	if p.now == nil {
		p.now = clock.Now
	}
	p.why = fmt.Sprintf("nvml has not answered for %.0f s: the driver hangs", OpenMax.Seconds())
	loaded := make(chan struct{})
	p.done.Go(func() { p.loadAndProbe(loaded) })
	late := time.NewTimer(OpenMax)
	defer late.Stop()
	select {
	case <-loaded:
	case <-late.C: // the agent must not wait for a driver that hangs
	}
	return p
}

// loadAndProbe loads the library, and probes where that finds GPUs.
func (p *Prober) loadAndProbe(loaded chan<- struct{}) {
	gpus, why := p.findGPUs()
	p.mu.Lock()
	p.gpus = gpus
	p.why = why
	p.xids = make([]xid, len(gpus))
	p.watch = make([]watched, len(gpus))
	p.mu.Unlock()
	close(loaded)
	if why != "" {
		return
	}
	if p.calls.hasEvents() {
		p.done.Go(p.watchXids)
	}
	p.probeUntilLost()
}

// findGPUs finds the GPUs, or returns why there are none.
func (p *Prober) findGPUs() (gpus []gpu, why string) {
	if ret := p.lib.Init(); ret != gonvml.SUCCESS {
		return nil, fmt.Sprintf("nvml did not start (%s): %s", describeStatus(ret), remedy)
	}
	p.calls = findSymbol(p.lib.Extensions())
	if missing := p.calls.isMissing(required...); missing != "" {
		return nil, "nvml lacks " + missing + ": update the driver, or set nvml.enabled to false"
	}
	n, ret := p.lib.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		return nil, "nvml can't count the GPUs: " + describeStatus(ret)
	}
	for i := range min(n, GPUsMax) {
		if g, ok := p.readGPU(i); ok {
			gpus = append(gpus, g)
		}
	}
	return gpus, ""
}

func (p *Prober) readGPU(i int) (g gpu, ok bool) {
	d, ret := p.lib.DeviceGetHandleByIndex(i)
	if ret != gonvml.SUCCESS {
		return g, false
	}
	g = gpu{name: falcon.NewDevice(p.node, i), handle: d}
	if p.calls["nvmlDeviceGetMaxClockInfo"] {
		g.maxMHz, _ = d.GetMaxClockInfo(gonvml.CLOCK_SM)
	}
	if p.calls["nvmlDeviceGetName"] {
		g.model, _ = d.GetName()
	}
	g.monitor = openMonitor(p.lib, p.calls, d)
	return g, true
}

// Devices names the GPUs that were found.
func (p *Prober) Devices() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, g := range p.gpus {
		out = append(out, string(g.name))
	}
	return out
}

// Err returns why nothing can be read, "" when something can.
func (p *Prober) Err() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why
}

// Latest hands over the readings that came since the last call, each once. A
// look that the driver has not answered for StallMin is reported in their
// place, as a stalled probe is evidence itself: against the GPU that it hangs
// at, not against those that wait behind it. nil means nothing new.
func (p *Prober) Latest(now time.Time) []falcon.GPUReading {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.fresh
	p.fresh = nil
	if out == nil && !p.started.IsZero() && now.Sub(p.started) >= StallMin {
		return p.isStalled(now)
	}
	return out
}

func (p *Prober) isStalled(now time.Time) []falcon.GPUReading {
	held := now.Sub(p.started)
	var out []falcon.GPUReading
	for i, g := range p.gpus {
		r := falcon.GPUReading{
			Device: g.name,
			AtNs:   now.UnixNano(),
			Err:    fmt.Sprintf("not read: nvml hangs at %s", p.gpus[p.at].name),
		}
		if i == p.at {
			r.ProbeUs = uint64(held.Microseconds())
			r.Err = fmt.Sprintf("nvml has not answered for %.0f s", held.Seconds())
		}
		out = append(out, r)
	}
	return out
}

// Close stops probing and unloads the library.
func (p *Prober) Close() {
	close(p.stop)
	ended := make(chan struct{})
	go func() {
		p.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		if p.Err() == "" {
			_ = p.lib.Shutdown()
		}
	case <-time.After(CloseMax): // a call that the driver holds ends with the process
	}
}

func (p *Prober) probeUntilLost() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer p.closeMonitors()
	for {
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		timer.Reset(p.readGPUs())
	}
}

func (p *Prober) closeMonitors() {
	for i := range p.gpus {
		if m := p.gpus[i].monitor; m != nil {
			m.free()
		}
	}
}

func (p *Prober) reachable(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.started = i, p.now()
}

// readGPUs reads every GPU once and returns when to read again.
func (p *Prober) readGPUs() time.Duration {
	p.mu.Lock()
	xids := append([]xid(nil), p.xids...)
	p.mu.Unlock()

	readings := make([]falcon.GPUReading, 0, len(p.gpus))
	var dearest time.Duration
	for i := range p.gpus {
		g := &p.gpus[i]
		p.reachable(i)
		r, took := p.timedRead(g)
		r.XidCount, r.LastXid = xids[i].count, xids[i].last
		dearest = max(dearest, took)
		readings = append(readings, r.GPUReading)
		p.reportChanges(i, &r)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = time.Time{}
	p.fresh = readings
	return p.pace.nextInterval(dearest)
}
