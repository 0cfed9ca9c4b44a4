package lab

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Nominal figures of the emulated GPU, in the range of a data-centre card.
const (
	nominalSMMHz   = 1980
	healthyTempC   = 62
	throttleTempC  = 91
	nominalPowerMw = 600_000
	powerLimitMw   = 700_000
)

// silicon is the mapped state file: what the emulated hardware is like now.
// The lab's one goroutine writes it; ranks and NVML read single fields. Its layout
// is that of native/include/falcon_lab.h, in abi_gen.go.
type silicon struct {
	mem []byte
}

// createSilicon makes the state file of healthy hardware: peakFlops per GPU in
// FLOP/s, linkBytes per second between nodes.
func createSilicon(path string, nodes, gpus int, peakFlops, linkBytes float64) (*silicon, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lab: can't create the state file: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(stateBytes); err != nil {
		return nil, fmt.Errorf("lab: can't size the state file: %w", err)
	}
	mem, err := unix.Mmap(
		int(f.Fd()),
		0,
		stateBytes,
		unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED,
	)
	if err != nil {
		return nil, fmt.Errorf("lab: can't map the state file: %w", err)
	}
	s := &silicon{mem: mem}
	s.init(nodes, gpus, peakFlops, linkBytes)
	return s, nil
}

// CreateState makes the state file of healthy hardware for processes that no Lab
// starts: the file of createSilicon, with its default links.
func CreateState(path string, nodes, gpus int, peakFlops, linkBytes float64) error {
	s, err := createSilicon(path, nodes, gpus, peakFlops, linkBytes)
	if err != nil {
		return err
	}
	return s.unmapState()
}

func (s *silicon) init(nodes, gpus int, peakFlops, linkBytes float64) {
	s.storeUint32(offVersion, stateVersion)
	s.storeUint32(offNodes, uint32(nodes))
	s.storeUint32(offGpusPerNode, uint32(gpus))
	s.storeFloat64(offPeakFlops, peakFlops)
	s.storeFloat64(offIntraBytesPerS, 20e9)
	s.storeFloat64(offIntraLatencyS, 10e-6)
	s.storeFloat64(offInterBytesPerS, linkBytes)
	s.storeFloat64(offInterLatencyS, 50e-6)
	for n := range nodesMax {
		for g := range gpusMax {
			s.resetThrottle(n, g)
		}
		for m := range nodesMax {
			s.storeFloat64(offsetOfLink(n, m)+linkBandwidth, 1)
			s.storeFloat64(offsetOfLink(n, m)+linkLatency, 1)
		}
	}
	s.storeUint64(offMagic, stateMagic) // last: readers wait for it
}

func (s *silicon) resetThrottle(n, g int) {
	at := offsetOfGPU(n, g)
	s.storeFloat64(at+gpuClock, 1)
	s.storeFloat64(at+gpuHostShare, 1)
	s.storeFloat64(at+gpuLoad, 1)
	s.storeUint32(at+gpuMaxSmMhz, nominalSMMHz)
	s.storeUint32(at+gpuSmMhz, nominalSMMHz)
	s.storeUint32(at+gpuTemperatureC, healthyTempC)
	s.storeUint32(at+gpuPowerMw, nominalPowerMw)
	s.storeUint32(at+gpuPowerLimitMw, powerLimitMw)
}

func offsetOfGPU(n, g int) int {
	return gpuOffset + (n*gpusMax+g)*gpuBytes
}

func offsetOfLink(a, b int) int {
	return linkOffset + (a*nodesMax+b)*linkBytes
}

// throttleGPU slows one GPU for heat, as NVML would show it; clock 1 ends it.
func (s *silicon) throttleGPU(n, g int, clock float64) {
	at := offsetOfGPU(n, g)
	now := uint64(monotonicNs())
	if since := s.loadUint64(at + gpuThermalSinceNs); since != 0 {
		s.storeUint64(at+gpuThermalNs, s.loadUint64(at+gpuThermalNs)+now-since)
	}
	temp := uint32(healthyTempC)
	reasons := uint64(0)
	since := uint64(0)
	if clock < 1 {
		temp = throttleTempC
		reasons = uint64(0x40 | 0x8)
		since = now
	}
	s.storeUint64(at+gpuThermalSinceNs, since)
	s.storeUint64(at+gpuReasons, reasons)
	s.storeUint32(at+gpuTemperatureC, temp)
	s.storeUint32(at+gpuSmMhz, uint32(nominalSMMHz*clock))
	s.storeUint32(at+gpuPowerMw, uint32(nominalPowerMw*clock))
	s.storeFloat64(at+gpuClock, clock)
}

func (s *silicon) setNodeLoad(n, g int, factor float64) {
	s.storeFloat64(offsetOfGPU(n, g)+gpuLoad, factor)
}

func (s *silicon) setHostShare(n, g int, share float64) {
	s.storeFloat64(offsetOfGPU(n, g)+gpuHostShare, share)
}

func (s *silicon) setBandwidth(a, b int, share float64) {
	s.storeFloat64(offsetOfLink(min(a, b), max(a, b)), share)
}

// bandwidth is the link's present share of healthy; safe from any goroutine.
func (s *silicon) bandwidth(a, b int) float64 {
	return math.Float64frombits(s.loadUint64(offsetOfLink(min(a, b), max(a, b)) + linkBandwidth))
}

func (s *silicon) storeFloat64(at int, v float64) {
	s.storeUint64(at, math.Float64bits(v))
}

func (s *silicon) storeUint64(at int, v uint64) {
	atomic.StoreUint64((*uint64)(s.pointerAt(at)), v)
}

func (s *silicon) storeUint32(at int, v uint32) {
	atomic.StoreUint32((*uint32)(s.pointerAt(at)), v)
}

func (s *silicon) loadUint64(at int) uint64 {
	return atomic.LoadUint64((*uint64)(s.pointerAt(at)))
}

func (s *silicon) pointerAt(off int) unsafe.Pointer {
	return unsafe.Pointer(&s.mem[off])
}

func (s *silicon) unmapState() error { return unix.Munmap(s.mem) }

// monotonicNs is CLOCK_MONOTONIC, which the stand-ins use too.
func monotonicNs() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("lab: no monotonic clock: " + err.Error())
	}
	return ts.Nano()
}
