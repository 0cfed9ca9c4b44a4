package nvml

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// labState writes a state file (native/include/falcon_lab.h) of one node with
// two GPUs, the second of them throttling for heat.
func labState(t *testing.T) string {
	t.Helper()
	const header, nodes, gpus, gpuBytes, linkBytes = 4096, 64, 8, 256, 32
	b := make([]byte, header+nodes*gpus*gpuBytes+nodes*nodes*linkBytes)
	le := binary.LittleEndian
	le.PutUint64(b, 0x31304241434c4146)
	le.PutUint32(b[8:], 1)
	le.PutUint32(b[12:], 1)
	le.PutUint32(b[16:], 2)
	for g := range 2 {
		e := b[header+g*gpuBytes:]
		le.PutUint64(e, math.Float64bits(1))
		le.PutUint64(e[8:], math.Float64bits(1))
		le.PutUint64(e[16:], math.Float64bits(1))
		le.PutUint32(e[24:], 1980)
		le.PutUint32(e[28:], uint32(1980/(g+1)))
		le.PutUint32(e[32:], uint32(50+30*g))
		le.PutUint32(e[36:], 300_000)
		le.PutUint32(e[40:], 700_000)
		le.PutUint64(e[48:], uint64(0x40*g))
		le.PutUint64(e[56:], uint64(5_000_000*g))
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The same go-nvml calls as on a real node, against the lab's stand-in.
func TestReadsTheLabsLibrary(t *testing.T) {
	library, err := filepath.Abs("../../bin/lib/libnvidia-ml.so.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); err != nil {
		t.Skipf("%s is not built: run make build first", library)
	}
	state := labState(t)
	t.Setenv("FALCON_LAB_STATE", state)
	t.Setenv("FALCON_LAB_NODE", "0")
	p := Open(Config{
		Node:    "n0",
		Library: library,
		Period:  10 * time.Millisecond,
	})
	defer p.Close()
	if p.Err() != "" || len(p.Devices()) != 2 {
		t.Fatalf("err %q, devices %v", p.Err(), p.Devices())
	}
	got := await(t, p, func([]falcon.GPUReading) bool { return true })
	g := got[1]
	if g.Device != "n0.g1" ||
		g.SMClockMHz != 990 ||
		g.MaxSMClockMHz != 1980 ||
		g.TemperatureC != 80 ||
		g.Reasons != 0x40 ||
		g.ThermalNs != 5_000_000 ||
		g.PowerMw != 300_000 ||
		g.PowerLimitMw != 700_000 ||
		g.Err != "" {
		t.Fatalf("reading %+v", g)
	}
	if got[0].ThermalNs != 0 || got[0].SMClockMHz != 1980 {
		t.Fatalf("reading %+v", got[0])
	}
	errors := uint64(0) // repeated, as those before the events were registered do not count
	got = await(t, p, func(r []falcon.GPUReading) bool {
		errors++
		raise(t, state, 0, 79, errors)
		return r[0].XidCount > 0
	})
	if got[0].LastXid != 79 || got[1].XidCount != 0 {
		t.Fatalf("readings %+v", got)
	}
}

// await waits for a reading of both GPUs that is as wanted.
func await(t *testing.T, p *Prober, ok func([]falcon.GPUReading) bool) []falcon.GPUReading {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got := p.Latest(time.Now()); len(got) == 2 && ok(got) {
			return got
		}
	}
	t.Fatal("the reading did not come")
	return nil
}

// raise sets how many XID errors one GPU of the state file has had.
func raise(t *testing.T, state string, gpu int, xid uint32, count uint64) {
	t.Helper()
	f, err := os.OpenFile(state, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], xid)
	if _, err := f.WriteAt(b[:4], int64(4096+gpu*256+44)); err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(b[:], count)
	if _, err := f.WriteAt(b[:], int64(4096+gpu*256+104)); err != nil {
		t.Fatal(err)
	}
}
