package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
)

// The layout of native/include/falcon_lab.h is in abi_gen.go.

// ErrLab is wrapped where the lab's state file can't be used.
var ErrLab = errors.New("host: bad lab state file")

// LabSteal is the share of CPU time that the node's ranks want and do not get
// in the lab: 1 − the least host_share of the node's first gpus GPUs (0 = all).
func LabSteal(path string, node, gpus int) (float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrLab, err)
	}
	defer f.Close()
	have, err := emulatedGPUs(f, node)
	if err != nil {
		return 0, err
	}
	if gpus <= 0 || gpus > have {
		gpus = have
	}
	least := 1.0
	for g := range gpus {
		share, err := emulatedShare(f, node, g)
		if err != nil {
			return 0, err
		}
		least = min(least, share)
	}
	return 1 - least, nil
}

func emulatedGPUs(f *os.File, node int) (int, error) {
	var h [24]byte
	if _, err := f.ReadAt(h[:], 0); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrLab, err)
	}
	le := binary.LittleEndian
	if le.Uint64(h[offMagic:]) != stateMagic || le.Uint32(h[offVersion:]) != stateVersion {
		return 0, fmt.Errorf("%w: it was not written by this version of the lab", ErrLab)
	}
	nodes := le.Uint32(h[offNodes:])
	gpus := le.Uint32(h[offGpusPerNode:])
	if nodes > nodesMax || gpus > gpusMax || node < 0 || node >= int(nodes) {
		return 0, fmt.Errorf("%w: node %d of %d with %d GPUs each", ErrLab, node, nodes, gpus)
	}
	return int(gpus), nil
}

func emulatedShare(f *os.File, node, gpu int) (float64, error) {
	var b [8]byte
	at := gpuOffset + (node*gpusMax+gpu)*gpuBytes + gpuHostShare
	if _, err := f.ReadAt(b[:], int64(at)); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrLab, err)
	}
	share := math.Float64frombits(binary.LittleEndian.Uint64(b[:]))
	if !(share >= 0 && share <= 1) {
		return 0, fmt.Errorf("%w: host share %v is not between 0 and 1", ErrLab, share)
	}
	return share, nil
}
