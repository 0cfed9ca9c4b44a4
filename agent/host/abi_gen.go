// Code generated from native/include/falcon_lab.h by go generate ./agent/internal/abitest. DO NOT EDIT.

package host

const (
	stateMagic        = 3544405754809958726
	stateVersion      = 1
	nodesMax          = 64
	gpusMax           = 8
	gpuOffset         = 4096
	linkOffset        = 135168
	stateBytes        = 266240
	offMagic          = 0
	offVersion        = 8
	offNodes          = 12
	offGpusPerNode    = 16
	offUnpaced        = 20
	offPeakFlops      = 24
	offIntraBytesPerS = 32
	offIntraLatencyS  = 40
	offInterBytesPerS = 48
	offInterLatencyS  = 56
	gpuBytes          = 256
	gpuClock          = 0
	gpuHostShare      = 8
	gpuLoad           = 16
	gpuMaxSmMhz       = 24
	gpuSmMhz          = 28
	gpuTemperatureC   = 32
	gpuPowerMw        = 36
	gpuPowerLimitMw   = 40
	gpuReasons        = 48
	gpuThermalNs      = 56
	gpuThermalSinceNs = 64
	linkBytes         = 32
	linkBandwidth     = 0
	linkLatency       = 8
)
