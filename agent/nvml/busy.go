package nvml

import (
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/failslow/falcon"
)

// How busy a GPU is, by two counters. Utilisation rates say how long something was on the GPU,
// where a collective that waits for its peers counts as much as a kernel that computes. GPM, from
// Hopper on, says how many of its multiprocessors were at work between two samples. What a GPU or
// driver does not offer is unknown, and not reported as missing: no verdict rests on it.

// monitor is the GPM of one GPU. It belongs to the probe's goroutine.
type monitor struct {
	lib      gonvml.Interface
	was, now gonvml.GpmSample
	sampled  bool // was holds a sample
}

// openMonitor returns nil where the GPU has no GPM.
func openMonitor(lib gonvml.Interface, calls symbols, d gonvml.Device) *monitor {
	if calls.isMissing(
		"nvmlGpmQueryDeviceSupport",
		"nvmlGpmSampleAlloc",
		"nvmlGpmSampleGet",
		"nvmlGpmSampleFree",
		"nvmlGpmMetricsGet",
	) != "" {
		return nil
	}
	if support, ret := d.GpmQueryDeviceSupport(); ret != gonvml.SUCCESS || support.IsSupportedDevice == 0 {
		return nil
	}
	m := &monitor{lib: lib}
	for _, s := range []*gonvml.GpmSample{&m.was, &m.now} {
		sample, ret := lib.GpmSampleAlloc()
		if ret != gonvml.SUCCESS {
			m.free()
			return nil
		}
		*s = sample
	}
	return m
}

func (m *monitor) free() {
	for _, s := range []gonvml.GpmSample{m.was, m.now} {
		if s != nil {
			_ = m.lib.GpmSampleFree(s)
		}
	}
}

// busySince is the share of the multiprocessors that were at work since the sample before. ok is
// false where GPM fails, as it does without permission and once MIG is on: it is not asked again.
func (m *monitor) busySince(d gonvml.Device) (p falcon.Percent, ok bool) {
	if d.GpmSampleGet(m.now) != gonvml.SUCCESS {
		return 0, false
	}
	if m.sampled {
		get := gonvml.GpmMetricsGetType{
			NumMetrics: 1,
			Sample1:    m.was,
			Sample2:    m.now,
		}
		get.Metrics[0].MetricId = uint32(gonvml.GPM_METRIC_SM_UTIL)
		if m.lib.GpmMetricsGet(&get) != gonvml.SUCCESS {
			return 0, false
		}
		if gonvml.Return(get.Metrics[0].NvmlReturn) == gonvml.SUCCESS {
			p = falcon.PercentOf(get.Metrics[0].Value)
		}
	}
	m.was, m.now, m.sampled = m.now, m.was, true
	return p, true
}

// readBusy asks both counters.
func (r *reading) readBusy(g *gpu) {
	if r.calls["nvmlDeviceGetUtilizationRates"] {
		if u, ret := g.handle.GetUtilizationRates(); ret == gonvml.SUCCESS {
			r.Busy = falcon.PercentOf(float64(u.Gpu))
		}
	}
	if g.monitor == nil {
		return
	}
	p, ok := g.monitor.busySince(g.handle)
	r.SMBusy = p
	if !ok {
		g.monitor.free()
		g.monitor = nil
	}
}
