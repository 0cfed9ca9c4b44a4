package nvml

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"go.uber.org/goleak"

	"github.com/failslow/falcon"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// silicon is one emulated GPU behind the library's own mock.
type silicon struct {
	mu     sync.Mutex
	mhz    uint32
	stall  time.Duration
	once   bool // only the first look stalls
	fields map[uint32]uint64
	xids   []uint64
	broken gonvml.Return
	gpm    gonvml.Return // what its performance monitor answers, if it has one
}

func newSilicon() *silicon {
	return &silicon{
		mhz: 1410,
		fields: map[uint32]uint64{
			gonvml.FI_DEV_POWER_INSTANT:                               300_000,
			gonvml.FI_DEV_POWER_CURRENT_LIMIT:                         400_000,
			gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP:            7,
			gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN:       1000,
			gonvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN:       500,
			gonvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: 9,
			gonvml.FI_DEV_ECC_SBE_VOL_TOTAL:                           3,
			gonvml.FI_DEV_ECC_DBE_VOL_TOTAL:                           1,
		},
	}
}

func (s *silicon) device() *mock.Device {
	return &mock.Device{
		GetMaxClockInfoFunc: func(gonvml.ClockType) (uint32, gonvml.Return) { return 1980, gonvml.SUCCESS },
		GetClockInfoFunc: func(gonvml.ClockType) (uint32, gonvml.Return) {
			s.mu.Lock()
			defer s.mu.Unlock()
			time.Sleep(s.stall)
			if s.once {
				s.stall = 0
			}
			return s.mhz, s.broken
		},
		GetTemperatureFunc: func(gonvml.TemperatureSensors) (uint32, gonvml.Return) {
			return 61, gonvml.SUCCESS
		},
		GetCurrentClocksEventReasonsFunc: func() (uint64, gonvml.Return) { return 0x40, gonvml.SUCCESS },
		GetPowerUsageFunc:                func() (uint32, gonvml.Return) { return 111_000, gonvml.SUCCESS },
		GetEnforcedPowerLimitFunc:        func() (uint32, gonvml.Return) { return 222_000, gonvml.SUCCESS },
		GetTotalEccErrorsFunc: func(gonvml.MemoryErrorType, gonvml.EccCounterType) (uint64, gonvml.Return) {
			return 0, gonvml.ERROR_NOT_SUPPORTED
		},
		RegisterEventsFunc: func(uint64, gonvml.EventSet) gonvml.Return { return gonvml.SUCCESS },
		GetFieldValuesFunc: s.fill,
		GetNameFunc:        func() (string, gonvml.Return) { return "NVIDIA H200", gonvml.SUCCESS },
		GetUtilizationRatesFunc: func() (gonvml.Utilization, gonvml.Return) {
			return gonvml.Utilization{Gpu: 97}, gonvml.SUCCESS
		},
		GetMemoryInfoFunc: func() (gonvml.Memory, gonvml.Return) {
			return gonvml.Memory{Total: 143 << 30, Used: 87 << 30}, gonvml.SUCCESS
		},
		GpmQueryDeviceSupportFunc: func() (gonvml.GpmSupport, gonvml.Return) {
			return gonvml.GpmSupport{}, s.gpm
		},
	}
}

func (s *silicon) fill(v []gonvml.FieldValue) gonvml.Return {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range v {
		n, ok := s.fields[v[i].FieldId]
		if !ok {
			v[i].NvmlReturn = uint32(gonvml.ERROR_NOT_SUPPORTED)
			continue
		}
		v[i].ValueType = uint32(gonvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
		binary.NativeEndian.PutUint64(v[i].Value[:], n)
	}
	return gonvml.SUCCESS
}

// library mocks libnvidia-ml with these GPUs and without the named symbols.
func library(gpus []*mock.Device, missing ...string) *mock.Interface {
	return &mock.Interface{
		InitFunc:           func() gonvml.Return { return gonvml.SUCCESS },
		ShutdownFunc:       func() gonvml.Return { return gonvml.SUCCESS },
		DeviceGetCountFunc: func() (int, gonvml.Return) { return len(gpus), gonvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (gonvml.Device, gonvml.Return) {
			return gpus[i], gonvml.SUCCESS
		},
		EventSetCreateFunc: func() (gonvml.EventSet, gonvml.Return) {
			return nil, gonvml.ERROR_NOT_SUPPORTED
		},
		ExtensionsFunc: func() gonvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(name string) error {
				for _, m := range missing {
					if strings.HasPrefix(name, m) {
						return errors.New("no such symbol")
					}
				}
				return nil
			}}
		},
	}
}

func TestReadsEverythingInOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProber(
			Config{Node: "n1", Now: time.Now},
			library([]*mock.Device{newSilicon().device(), newSilicon().device()}),
		)
		defer p.Close()
		synctest.Wait()
		got := p.Latest(time.Now())
		if len(got) != 2 || len(p.Latest(time.Now())) != 0 {
			t.Fatalf("readings %v; each must come once", got)
		}
		want := falcon.GPUReading{
			Device:        "n1.g1",
			AtNs:          time.Now().UnixNano(),
			SMClockMHz:    1410,
			MaxSMClockMHz: 1980,
			TemperatureC:  61,
			PowerMw:       300_000,
			PowerLimitMw:  400_000,
			Reasons:       0x40,
			ThermalNs:     1500,
			PowerBrakeNs:  9,
			PowerCapNs:    7,
			EccCorrected:  3,
			EccFatal:      1,
			Model:         "NVIDIA H200",
			Busy:          98,
		}
		gauges := got[1].Gauges
		power, _ := gauges.Value(falcon.GaugePower)
		memory, _ := gauges.Value(falcon.GaugeMemory)
		if power != 300 || memory != 61 {
			t.Errorf("gauges %v", gauges)
		}
		got[1].Gauges = nil
		if !reflect.DeepEqual(got[1], want) {
			t.Fatalf("got  %+v\nwant %+v", got[1], want)
		}
	})
}

// A symbol that the library lacks would end the process if it were called.
func TestMissingSymbolsAreNamedNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSilicon().device()
		// panic when called
		d.GetFieldValuesFunc = nil
		d.GetTemperatureFunc = nil
		d.GetCurrentClocksEventReasonsFunc = nil
		d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, gonvml.Return) { return 0x8, gonvml.SUCCESS }
		p := newProber(
			Config{Node: "n1", Now: time.Now},
			library(
				[]*mock.Device{d},
				"nvmlDeviceGetFieldValues",
				"nvmlDeviceGetTemperature",
				"nvmlDeviceGetCurrentClocksEventReasons",
				"nvmlEventSet",
			),
		)
		defer p.Close()
		synctest.Wait()
		got := p.Latest(time.Now())[0]
		if got.PowerMw != 111_000 ||
			got.PowerLimitMw != 222_000 ||
			got.Reasons != 0x8 ||
			got.SMClockMHz != 1410 {
			t.Fatalf("reading %+v", got)
		}
		for _, say := range []string{
			"temperature: not in this library",
			"counters: not in this library",
			"thermal time: not supported",
			"fatal ECC errors: not supported",
		} {
			if !strings.Contains(got.Err, say) {
				t.Errorf("%q lacks %q", got.Err, say)
			}
		}
	})
}

func TestNoLibraryIsSaid(t *testing.T) {
	for library, say := range map[string]string{
		"/nonexistent/libnvidia-ml.so.1": "No such file",
		"libc.so.6":                      "is not NVML",
	} {
		p := Open(Config{Node: "n1", Library: library})
		why := p.Err()
		if !strings.Contains(why, say) ||
			!strings.Contains(why, "nvml.enabled") ||
			len(p.Devices()) != 0 ||
			p.Latest(time.Now()) != nil {
			t.Errorf("%s: err %q, devices %v", library, p.Err(), p.Devices())
		}
		p.Close()
	}
}

// A dear look doubles the period up to PeriodMax; cheap ones bring it back.
func TestBacksOffWhenLooksAreDear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilicon()
		s.stall = 3 * time.Millisecond
		p := newProber(
			Config{Node: "n1", Now: time.Now, Period: time.Second},
			library([]*mock.Device{s.device()}),
		)
		defer p.Close()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := p.Period(); got != PeriodMax {
			t.Fatalf("period %v", got)
		}
		if got := p.Latest(time.Now())[0].ProbeUs; got != 3000 {
			t.Fatalf("probe took %d µs", got)
		}
		s.mu.Lock()
		s.stall = 0
		s.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := p.Period(); got != time.Second {
			t.Fatalf("period %v after cheap looks", got)
		}
	})
}

// The GPU that the driver hangs at is distinguished from those that wait behind it.
func TestStallNamesTheGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilicon()
		s.stall = 45 * time.Second
		s.once = true
		p := newProber(
			Config{Node: "n1", Now: time.Now},
			library([]*mock.Device{newSilicon().device(), s.device(), newSilicon().device()}),
		)
		defer p.Close()
		time.Sleep(12 * time.Second)
		got := p.Latest(time.Now())
		if len(got) != 3 ||
			got[1].ProbeUs < 11_000_000 ||
			got[0].ProbeUs != 0 ||
			got[2].ProbeUs != 0 ||
			got[0].Err != "not read: nvml hangs at n1.g1" {
			t.Fatalf("readings %+v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// A driver that hangs from the start keeps nobody waiting, and counts once it
// answers.
func TestHangingStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := library([]*mock.Device{newSilicon().device()})
		lib.InitFunc = func() gonvml.Return {
			time.Sleep(time.Minute)
			return gonvml.SUCCESS
		}
		began := time.Now()
		p := newProber(Config{Node: "n1", Now: time.Now}, lib)
		defer p.Close()
		took := time.Since(began)
		if took != OpenMax ||
			!strings.Contains(p.Err(), "has not answered for 10 s") ||
			p.Devices() != nil ||
			p.Latest(time.Now()) != nil {
			t.Fatalf("took %v, %q", took, p.Err())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if p.Err() != "" || len(p.Latest(time.Now())) != 1 {
			t.Fatalf("after it answered: %q", p.Err())
		}
	})
}

func TestStalledProbeIsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilicon()
		s.stall = 45 * time.Second
		s.once = true
		p := newProber(Config{Node: "n1", Now: time.Now}, library([]*mock.Device{s.device()}))
		defer p.Close()
		time.Sleep(2 * time.Second)
		if got := p.Latest(time.Now()); got != nil {
			t.Fatalf("reported too early: %v", got)
		}
		time.Sleep(10 * time.Second)
		got := p.Latest(time.Now())
		if len(got) != 1 ||
			got[0].Device != "n1.g0" ||
			!strings.Contains(got[0].Err, "not answered for 12 s") ||
			got[0].ProbeUs < 11_000_000 {
			t.Fatalf("readings %+v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

func TestFailedQueryIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilicon()
		s.broken = gonvml.ERROR_GPU_IS_LOST
		p := newProber(Config{Node: "n1", Now: time.Now}, library([]*mock.Device{s.device()}))
		defer p.Close()
		synctest.Wait()
		got := p.Latest(time.Now())[0]
		if got.Err != "SM clock: the GPU is lost" || got.TemperatureC != 61 {
			t.Fatalf("reading %+v", got)
		}
	})
}

func TestXidsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilicon()
		s.xids = []uint64{79, 48}
		d, other := s.device(), newSilicon().device()
		lib := library([]*mock.Device{other, d})
		lib.EventSetCreateFunc = func() (gonvml.EventSet, gonvml.Return) {
			return &mock.EventSet{
				FreeFunc: func() gonvml.Return { return gonvml.SUCCESS },
				WaitFunc: func(ms uint32) (gonvml.EventData, gonvml.Return) {
					if len(s.xids) == 0 {
						time.Sleep(time.Duration(ms) * time.Millisecond)
						return gonvml.EventData{}, gonvml.ERROR_TIMEOUT
					}
					x := s.xids[0]
					s.xids = s.xids[1:]
					return gonvml.EventData{Device: d, EventData: x}, gonvml.SUCCESS
				},
			}, gonvml.SUCCESS
		}
		p := newProber(Config{Node: "n1", Now: time.Now}, lib)
		defer p.Close()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		got := p.Latest(time.Now())
		if got[1].XidCount != 2 || got[1].LastXid != 48 || got[0].XidCount != 0 {
			t.Fatalf("readings %+v", got)
		}
	})
}

func TestFieldValue(t *testing.T) {
	value := func(kind gonvml.ValueType, raw uint64) gonvml.FieldValue {
		v := gonvml.FieldValue{ValueType: uint32(kind)}
		binary.NativeEndian.PutUint64(v.Value[:], raw)
		return v
	}
	minus := int64(-5)
	for _, c := range []struct {
		in   gonvml.FieldValue
		want uint64
		ok   bool
	}{
		{value(gonvml.VALUE_TYPE_UNSIGNED_INT, 7|0xdead<<32), 7, true},
		{value(gonvml.VALUE_TYPE_UNSIGNED_SHORT, 7|0xdead<<16), 7, true},
		{value(gonvml.VALUE_TYPE_UNSIGNED_LONG, 1<<40), 1 << 40, true},
		{value(gonvml.VALUE_TYPE_DOUBLE, math.Float64bits(12.9)), 12, true},
		{value(gonvml.VALUE_TYPE_DOUBLE, math.Float64bits(math.NaN())), 0, false},
		{value(gonvml.VALUE_TYPE_SIGNED_LONG_LONG, uint64(minus)), 0, false},
		{value(99, 7), 0, false},
		{gonvml.FieldValue{NvmlReturn: uint32(gonvml.ERROR_NOT_SUPPORTED)}, 0, false},
	} {
		if got, ok := fieldValue(c.in); ok != c.ok || (ok && got != c.want) {
			t.Errorf("%+v: %d %v, want %d %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

// Period is the present time between readings.
func (p *Prober) Period() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pace.period
}
