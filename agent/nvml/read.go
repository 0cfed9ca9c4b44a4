package nvml

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/failslow/falcon"
)

// symbols are the functions that the loaded library has. go-nvml ends the
// process when it calls one that is missing.
type symbols map[string]bool

var required = []string{"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}

// looked is every function that this package may call, without version
// suffix: go-nvml picks the newest version that it finds.
var looked = map[string][]string{
	"nvmlDeviceGetCount":                        {"nvmlDeviceGetCount_v2"},
	"nvmlDeviceGetHandleByIndex":                {"nvmlDeviceGetHandleByIndex_v2"},
	"nvmlDeviceGetMaxClockInfo":                 nil,
	"nvmlDeviceGetClockInfo":                    nil,
	"nvmlDeviceGetTemperature":                  nil,
	"nvmlDeviceGetPowerUsage":                   nil,
	"nvmlDeviceGetEnforcedPowerLimit":           nil,
	"nvmlDeviceGetCurrentClocksEventReasons":    nil,
	"nvmlDeviceGetCurrentClocksThrottleReasons": nil,
	"nvmlDeviceGetTotalEccErrors":               nil,
	"nvmlDeviceGetFieldValues":                  nil,
	"nvmlEventSetCreate":                        nil,
	"nvmlEventSetFree":                          nil,
	"nvmlEventSetWait":                          {"nvmlEventSetWait_v2"},
	"nvmlDeviceRegisterEvents":                  nil,
	"nvmlDeviceGetName":                         nil,
	"nvmlDeviceGetUtilizationRates":             nil,
	"nvmlDeviceGetMemoryInfo":                   nil,
	"nvmlGpmQueryDeviceSupport":                 nil,
	"nvmlGpmSampleAlloc":                        nil,
	"nvmlGpmSampleGet":                          nil,
	"nvmlGpmSampleFree":                         nil,
	"nvmlGpmMetricsGet":                         nil,
}

func findSymbol(lib gonvml.ExtendedInterface) symbols {
	s := symbols{}
	for name, newer := range looked {
		for _, n := range append([]string{name}, newer...) {
			s[name] = s[name] || lib.LookupSymbol(n) == nil
		}
	}
	return s
}

func (s symbols) isMissing(names ...string) string {
	var out []string
	for _, n := range names {
		if !s[n] {
			out = append(out, n)
		}
	}
	return strings.Join(out, ", ")
}

func (s symbols) hasEvents() bool {
	return s.isMissing(
		"nvmlEventSetCreate",
		"nvmlEventSetFree",
		"nvmlEventSetWait",
		"nvmlDeviceRegisterEvents",
	) == ""
}

// reading collects one reading and what it could not see.
type reading struct {
	falcon.GPUReading
	calls  symbols
	absent []string
	action uint64 // that the driver asks for, 0 = none or not known
}

// runQuery runs one query when the library has it and notes a failure.
func (r *reading) runQuery(symbol, what string, query func() gonvml.Return) bool {
	if !r.calls[symbol] {
		r.absent = append(r.absent, what+": not in this library")
		return false
	}
	if ret := query(); ret != gonvml.SUCCESS {
		r.absent = append(r.absent, what+": "+describeStatus(ret))
		return false
	}
	return true
}

// timedRead reads one GPU and returns how long that took.
func (p *Prober) timedRead(g *gpu) (reading, time.Duration) {
	begun := time.Now()
	r := reading{
		GPUReading: falcon.GPUReading{
			Device:        g.name,
			AtNs:          p.now().UnixNano(),
			MaxSMClockMHz: g.maxMHz,
			Model:         g.model,
		},
		calls: p.calls,
	}
	r.readRemaining(g.handle)
	r.readFields(g.handle)
	r.readBusy(g)
	r.readGauges(g.handle)
	took := time.Since(begun)
	r.ProbeUs = uint64(took.Microseconds())
	r.Err = strings.Join(r.absent, "; ")
	return r, took
}

// readRemaining asks for what the batch has no field for.
func (r *reading) readRemaining(d gonvml.Device) {
	var ret gonvml.Return
	r.runQuery("nvmlDeviceGetClockInfo", "SM clock", func() gonvml.Return {
		r.SMClockMHz, ret = d.GetClockInfo(gonvml.CLOCK_SM)
		return ret
	})
	r.runQuery("nvmlDeviceGetTemperature", "temperature", func() gonvml.Return {
		r.TemperatureC, ret = d.GetTemperature(gonvml.TEMPERATURE_GPU)
		return ret
	})
	r.readReasons(d)
}

// readGauges asks for what people look at.
func (r *reading) readGauges(d gonvml.Device) {
	if r.PowerMw > 0 {
		r.Gauges.Set(falcon.GaugePower, float64(r.PowerMw)/1e3)
	}
	if !r.calls["nvmlDeviceGetMemoryInfo"] {
		return
	}
	if m, ret := d.GetMemoryInfo(); ret == gonvml.SUCCESS && m.Total > 0 {
		r.Gauges.Set(falcon.GaugeMemory, 100*float64(m.Used)/float64(m.Total))
	}
}

// readReasons falls back to the name that drivers before 535 have.
func (r *reading) readReasons(d gonvml.Device) {
	var ret gonvml.Return
	if !r.calls["nvmlDeviceGetCurrentClocksEventReasons"] {
		r.runQuery("nvmlDeviceGetCurrentClocksThrottleReasons", "clock reasons", func() gonvml.Return {
			r.Reasons, ret = d.GetCurrentClocksThrottleReasons() // the only name that old drivers know
			return ret
		})
		return
	}
	r.runQuery("nvmlDeviceGetCurrentClocksEventReasons", "clock reasons", func() gonvml.Return {
		r.Reasons, ret = d.GetCurrentClocksEventReasons()
		return ret
	})
}

// fields of one batched query, in the order in which they are stored.
const (
	fieldPower = iota
	fieldPowerLimit
	fieldPowerCap
	fieldSwThermal
	fieldHwThermal
	fieldPowerBrake
	fieldEccCorrected
	fieldEccFatal
	fieldAction
	fieldCount
)

var fieldIDs = [fieldCount]uint32{
	fieldPower:        gonvml.FI_DEV_POWER_INSTANT,
	fieldPowerLimit:   gonvml.FI_DEV_POWER_CURRENT_LIMIT,
	fieldPowerCap:     gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
	fieldSwThermal:    gonvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
	fieldHwThermal:    gonvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
	fieldPowerBrake:   gonvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
	fieldEccCorrected: gonvml.FI_DEV_ECC_SBE_VOL_TOTAL,
	fieldEccFatal:     gonvml.FI_DEV_ECC_DBE_VOL_TOTAL,
	fieldAction:       gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION,
}

// readFields takes counters, power and ECC in one call: one turn at the
// driver's lock instead of eight.
func (r *reading) readFields(d gonvml.Device) {
	var v [fieldCount]gonvml.FieldValue
	for i, id := range fieldIDs {
		v[i].FieldId = id
	}
	if !r.runQuery("nvmlDeviceGetFieldValues", "counters", func() gonvml.Return {
		return d.GetFieldValues(v[:])
	}) {
		v = [fieldCount]gonvml.FieldValue{}
		for i := range v {
			v[i].NvmlReturn = uint32(gonvml.ERROR_NOT_SUPPORTED)
		}
	}
	sw, swOK := fieldValue(v[fieldSwThermal])
	hw, hwOK := fieldValue(v[fieldHwThermal])
	r.ThermalNs = sw + hw
	r.noteFailure(swOK || hwOK, "thermal time")
	r.PowerBrakeNs = r.fieldValue(v[fieldPowerBrake], "power brake time")
	r.PowerCapNs = r.fieldValue(v[fieldPowerCap], "power cap time")
	r.readPower(d, v[fieldPower], v[fieldPowerLimit])
	r.readEcc(d, v[fieldEccCorrected], v[fieldEccFatal])
	r.action, _ = fieldValue(v[fieldAction]) // older drivers don't know it: nothing is missing then
}

func (r *reading) noteFailure(ok bool, what string) {
	if !ok {
		r.absent = append(r.absent, what+": not supported")
	}
}

func (r *reading) fieldValue(v gonvml.FieldValue, what string) uint64 {
	n, ok := fieldValue(v)
	r.noteFailure(ok, what)
	return n
}

// readPower prefers the instant value; GetPowerUsage is a 1 s average on
// newer GPUs.
func (r *reading) readPower(d gonvml.Device, power, limit gonvml.FieldValue) {
	var ret gonvml.Return
	if mw, ok := fieldValue(power); ok {
		r.PowerMw = clamp32(mw)
	} else {
		r.runQuery("nvmlDeviceGetPowerUsage", "power", func() gonvml.Return {
			r.PowerMw, ret = d.GetPowerUsage()
			return ret
		})
	}
	if mw, ok := fieldValue(limit); ok {
		r.PowerLimitMw = clamp32(mw)
		return
	}
	r.runQuery("nvmlDeviceGetEnforcedPowerLimit", "power limit", func() gonvml.Return {
		r.PowerLimitMw, ret = d.GetEnforcedPowerLimit()
		return ret
	})
}

func (r *reading) readEcc(d gonvml.Device, corrected, fatal gonvml.FieldValue) {
	r.EccCorrected = r.eccCount(d, corrected, gonvml.MEMORY_ERROR_TYPE_CORRECTED, "corrected ECC errors")
	r.EccFatal = r.eccCount(d, fatal, gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, "fatal ECC errors")
}

func (r *reading) eccCount(
	d gonvml.Device,
	v gonvml.FieldValue,
	kind gonvml.MemoryErrorType,
	what string,
) uint64 {
	n, ok := fieldValue(v)
	if ok {
		return n
	}
	var ret gonvml.Return
	r.runQuery("nvmlDeviceGetTotalEccErrors", what, func() gonvml.Return {
		n, ret = d.GetTotalEccErrors(kind, gonvml.VOLATILE_ECC)
		return ret
	})
	return n
}

// fieldValue decodes a field by its own type; false where the GPU has none.
func fieldValue(v gonvml.FieldValue) (uint64, bool) {
	if gonvml.Return(v.NvmlReturn) != gonvml.SUCCESS {
		return 0, false
	}
	raw := binary.NativeEndian.Uint64(v.Value[:])
	low := binary.NativeEndian.Uint32(v.Value[:4])
	switch gonvml.ValueType(v.ValueType) {
	case gonvml.VALUE_TYPE_DOUBLE:
		f := math.Float64frombits(raw)
		return uint64(max(f, 0)), f >= 0 && f < math.MaxInt64
	case gonvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(low), true
	case gonvml.VALUE_TYPE_UNSIGNED_LONG, gonvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return raw, true
	case gonvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return uint64(max(int64(raw), 0)), int64(raw) >= 0
	case gonvml.VALUE_TYPE_SIGNED_INT:
		return uint64(max(int32(low), 0)), int32(low) >= 0
	case gonvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(v.Value[:2])), true
	}
	return 0, false
}

func clamp32(n uint64) uint32 {
	return uint32(min(n, math.MaxUint32))
}

// describeStatus puts an NVML status in words without calling the library, which may
// not be there.
func describeStatus(ret gonvml.Return) string {
	switch ret {
	case gonvml.ERROR_NOT_SUPPORTED:
		return "not supported"
	case gonvml.ERROR_NO_PERMISSION:
		return "no permission"
	case gonvml.ERROR_LIBRARY_NOT_FOUND:
		return "library not found"
	case gonvml.ERROR_DRIVER_NOT_LOADED:
		return "driver not loaded"
	case gonvml.ERROR_GPU_IS_LOST:
		return "the GPU is lost"
	case gonvml.ERROR_RESET_REQUIRED:
		return "the GPU needs a reset"
	case gonvml.ERROR_TIMEOUT:
		return "timed out"
	}
	return "nvml status " + formatInt(int(ret))
}
