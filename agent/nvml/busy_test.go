package nvml

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/failslow/falcon"
)

// counter is a GPM sample of a GPU whose multiprocessors work three quarters of the time.
type counter struct {
	mock.GpmSample
	at time.Time
}

// monitored gives a GPU a performance monitor; it counts samples that are not freed.
func monitored(lib *mock.Interface, d *mock.Device, samples *int, fails func() gonvml.Return) {
	d.GpmQueryDeviceSupportFunc = func() (gonvml.GpmSupport, gonvml.Return) {
		return gonvml.GpmSupport{IsSupportedDevice: 1}, gonvml.SUCCESS
	}
	d.GpmSampleGetFunc = func(s gonvml.GpmSample) gonvml.Return {
		s.(*counter).at = time.Now()
		return fails()
	}
	lib.GpmSampleAllocFunc = func() (gonvml.GpmSample, gonvml.Return) {
		*samples++
		return &counter{}, gonvml.SUCCESS
	}
	lib.GpmSampleFreeFunc = func(gonvml.GpmSample) gonvml.Return {
		*samples--
		return gonvml.SUCCESS
	}
	lib.GpmMetricsGetFunc = func(g *gonvml.GpmMetricsGetType) gonvml.Return {
		was, now := g.Sample1.(*counter), g.Sample2.(*counter)
		if !now.at.After(was.at) ||
			g.NumMetrics != 1 ||
			g.Metrics[0].MetricId != uint32(gonvml.GPM_METRIC_SM_UTIL) {
			return gonvml.ERROR_INVALID_ARGUMENT
		}
		g.Metrics[0].Value = 75
		return gonvml.SUCCESS
	}
}

func TestHowBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSilicon().device()
		other := newSilicon().device()
		samples := 0
		var broken atomic.Int32 // the prober has a goroutine of its own
		lib := library([]*mock.Device{d, other})
		monitored(lib, d, &samples, func() gonvml.Return {
			return gonvml.Return(broken.Load())
		})
		p := newProber(Config{Node: "n1", Now: time.Now, Period: time.Second}, lib)
		look := func() []falcon.GPUReading {
			time.Sleep(time.Second)
			synctest.Wait()
			return p.Latest(time.Now())
		}
		synctest.Wait()
		first := p.Latest(time.Now())
		if first[0].Busy != 98 ||
			first[0].SMBusy != 0 ||
			first[0].Model != "NVIDIA H200" {
			t.Errorf("the first look: %+v", first[0]) // one sample compares with nothing
		}
		for range 3 {
			got := look()
			if got[0].SMBusy != 76 ||
				got[0].Err != "" ||
				got[1].SMBusy != 0 ||
				got[1].Busy != 98 {
				t.Errorf("%+v", got)
			}
		}
		broken.Store(int32(gonvml.ERROR_NO_PERMISSION))
		for range 2 {
			got := look()
			if got[0].SMBusy != 0 || got[0].Busy != 98 || got[0].Err != "" {
				t.Errorf("without permission: %+v", got[0])
			}
		}
		if samples != 0 {
			t.Errorf("%d samples are kept of a monitor that is not asked again", samples)
		}
		p.Close()
	})
}

func TestMonitorsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSilicon().device()
		samples := 0
		lib := library([]*mock.Device{d})
		monitored(lib, d, &samples, func() gonvml.Return { return gonvml.SUCCESS })
		p := newProber(Config{Node: "n1", Now: time.Now, Period: time.Second}, lib)
		time.Sleep(3 * time.Second)
		p.Close()
		if samples != 0 {
			t.Errorf("%d samples are left", samples)
		}
	})
}

// Drivers before 520 have neither; nothing is missing then that a verdict needs.
func TestOldDriversHaveNoMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSilicon().device()
		p := newProber(
			Config{Node: "n1", Now: time.Now},
			library([]*mock.Device{d}, "nvmlGpm", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetName"),
		)
		defer p.Close()
		synctest.Wait()
		got := p.Latest(time.Now())
		if got[0].Busy != 0 ||
			got[0].SMBusy != 0 ||
			got[0].Model != "" ||
			got[0].SMClockMHz == 0 {
			t.Errorf("%+v", got[0])
		}
	})
}
