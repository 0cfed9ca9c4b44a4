package e2e

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The state file of native/include/falcon_lab.h.
const (
	labMagic   = 0x31304241434c4146
	labNodes   = 64
	labGPUs    = 8
	labGPUAt   = 4096
	labLinkAt  = labGPUAt + labNodes*labGPUs*256
	labBytes   = labLinkAt + labNodes*labNodes*32
	labMaxSM   = 1980
	labIntraBw = 200e6 // bytes/s: slow enough for this model's messages to take time
	labInterBw = 50e6
)

// paced writes the state file of healthy emulated hardware on which the
// trainer's passes take what its flags say, and returns its path.
func paced(t *testing.T, dir string, args []string, nodes int) string {
	t.Helper()
	out, msg, code := execute(t, nil, append(args, "--print-peak")...)
	peak, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if code != 0 || err != nil {
		t.Fatalf("no peak: %s%v", msg, err)
	}
	b := make([]byte, labBytes)
	u32 := func(at int, v uint32) {
		binary.LittleEndian.PutUint32(b[at:], v)
	}
	f64 := func(at int, v float64) {
		binary.LittleEndian.PutUint64(b[at:], math.Float64bits(v))
	}
	binary.LittleEndian.PutUint64(b, labMagic)
	u32(8, 1)
	u32(12, uint32(nodes))
	u32(16, labGPUs)
	for i, v := range []float64{peak, labIntraBw, 10e-6, labInterBw, 50e-6} {
		f64(24+8*i, v)
	}
	for g := range labNodes * labGPUs {
		for i := range 3 {
			f64(labGPUAt+256*g+8*i, 1) // clock, host share, load
		}
		u32(labGPUAt+256*g+24, labMaxSM)
		u32(labGPUAt+256*g+28, labMaxSM)
	}
	for l := range labNodes * labNodes {
		f64(labLinkAt+32*l, 1)
		f64(labLinkAt+32*l+8, 1)
	}
	path := filepath.Join(dir, "state")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
