package ring

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	falcon "github.com/failslow/falcon"
)

// blank is a well-formed file in memory, aligned as a mapping is.
func blank() image {
	const bytes = 8192 + 36864 + 49152 + timingSlots*timingBytes + ringsMax*(pageBytes+ringSlots*recordBytes)
	words := make([]uint64, bytes/8)
	m := image(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), bytes))
	p := Process{}
	p.control = roundUpToPage(headerBytes)
	p.comms = p.control + roundUpToPage(controlBytes)
	p.timings = p.comms + roundUpToPage(commsMax*commBytes)
	p.rings = p.timings + roundUpToPage(timingSlots*timingBytes)
	m = m[:p.rings+ringsMax*(pageBytes+ringSlots*recordBytes)]
	for off, v := range map[uint64]uint32{
		hdrVersion:     shmVersion,
		hdrHeaderBytes: headerBytes,
		hdrPID:         77,
		hdrRings:       ringsMax,
		hdrRingSlots:   ringSlots,
		hdrComms:       commsMax,
		hdrTimingSlots: timingSlots,
		hdrOrderSlots:  orderSlots,
		hdrRank:        2,
		hdrWorld:       8,
		hdrClock:       clockTSC,
	} {
		m.writeUint32(off, v)
	}
	for off, v := range map[uint64]uint64{
		hdrMagic:         shmMagic,
		hdrFileBytes:     uint64(len(m)),
		hdrControlOffset: p.control,
		hdrCommsOffset:   p.comms,
		hdrTimingsOffset: p.timings,
		hdrRingsOffset:   p.rings,
		hdrRingStride:    pageBytes + ringSlots*recordBytes,
		hdrStartUnixNs:   5e18,
		hdrStartMonoNs:   1_000_000,
		hdrStartTicks:    1_000_000,
		hdrCalibTicks:    3_000_000,
		hdrCalibMonoNs:   2_000_000,
	} {
		m.writeUint64(off, v)
	}
	return m
}

func open(t testing.TB, m image) *Process {
	t.Helper()
	p, err := parseImage("image", m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// write appends a record to ring i as the hook does, entered at the tick given.
func write(p *Process, i int, tick uint64) {
	head := p.mem.readUint64(p.ringOffset(i)+rngHead) + 1
	at := p.ringOffset(i) + pageBytes + (head-1)%ringSlots*recordBytes
	w := p.mem[at : at+recordBytes]
	w.writeUint64(recSeq, 0)
	w.writeUint64(recEnter, tick)
	w.writeUint64(recExit, tick+10)
	w.writeUint64(recCount, head*3)
	w.writeUint64(recOrdinal, head-1)
	w.writeUint32(recComm, 4)
	w.writeUint32(recOp, uint32(falcon.OpSend)|7<<8|2<<16|FlagGrouped<<24)
	w.writeUint64(recSeq, head)
	p.mem.writeUint64(p.ringOffset(i)+rngHead, head)
}

func TestDrainConvertsEveryField(t *testing.T) {
	p := open(t, blank())
	write(p, 0, 5_000_000)
	var buf [4]Record
	n, lost := p.Drain(buf[:])
	want := Record{
		EnterNs: 3_000_000,
		ExitNs:  3_000_005,
		Count:   3,
		Seq:     1,
		Comm:    4,
		Op:      falcon.OpSend,
		Dtype:   7,
		Depth:   2,
		Flags:   FlagGrouped,
	} // two ticks are one nanosecond
	if n != 1 || lost != 0 || buf[0] != want {
		t.Errorf("Drain = %d, %d, %+v, want %+v", n, lost, buf[0], want)
	}
	if got := p.UnixNs(buf[0].EnterNs); got != 5e18+2_000_000 {
		t.Errorf("UnixNs = %d", got)
	}
}

// TestDrainMerges compares with a sort over everything that was written.
func TestDrainMerges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		p := open(t, blank())
		var want []int64
		tick := uint64(10_000_000)
		for range rng.IntN(3000) {
			tick += 2 + rng.Uint64N(100)*2
			write(p, rng.IntN(ringsMax), tick)
			want = append(want, p.clock.ticksToMono(tick))
		}
		var got []int64
		buf := make([]Record, 1+rng.IntN(500))
		for n, lost := p.Drain(buf); n > 0; n, lost = p.Drain(buf) {
			if lost != 0 {
				t.Fatalf("lost %d of rings that never wrapped", lost)
			}
			for _, r := range buf[:n] {
				got = append(got, r.EnterNs)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d records came out in another order than %d went in", len(got), len(want))
		}
	}
}

func TestDrainCountsLosses(t *testing.T) {
	p := open(t, blank())
	for i := range uint64(3*ringSlots + 100) {
		write(p, 1, 10_000_000+i*2)
	}
	buf := make([]Record, 4*ringSlots)
	n, lost := p.Drain(buf)
	if n != ringSlots || lost != 2*ringSlots+100 || buf[0].Seq != 2*ringSlots+101 {
		t.Errorf("Drain = %d, lost %d, first %d", n, lost, buf[0].Seq)
	}
	// A slot that is being rewritten while we come is lost, not misread.
	write(p, 1, 20_000_000)
	p.mem.writeUint64(p.ringOffset(1)+pageBytes+(3*ringSlots+100)%ringSlots*recordBytes, 0)
	if n, lost = p.Drain(buf); n != 0 || lost != 1 {
		t.Errorf("half-written record: %d, lost %d", n, lost)
	}
	// A head that goes backwards or to infinity neither panics nor loops.
	p.mem.writeUint64(p.ringOffset(1), 5)
	if n, _ = p.Drain(buf); n != 0 {
		t.Errorf("head moved back: %d records", n)
	}
	p.mem.writeUint64(p.ringOffset(1), ^uint64(0))
	if n, lost = p.Drain(buf); n > ringSlots || lost == 0 {
		t.Errorf("head at infinity: %d records, lost %d", n, lost)
	}
}

// TestOpenSkipsWhatIsGone: losses before the agent came are not its losses.
func TestOpenSkipsWhatIsGone(t *testing.T) {
	m := blank()
	p := open(t, m)
	for i := range uint64(ringSlots + 7) {
		write(p, 0, 10_000_000+i)
	}
	buf := make([]Record, 2*ringSlots)
	if n, lost := open(t, m).Drain(buf); n != ringSlots || lost != 0 {
		t.Errorf("Drain = %d, lost %d", n, lost)
	}
}

func TestDrainDoesNotAllocate(t *testing.T) {
	p := open(t, blank())
	buf := make([]Record, 1024)
	tick := uint64(10_000_000)
	allocs := testing.AllocsPerRun(20, func() {
		for range 1000 {
			tick += 3
			write(p, int(tick)%4, tick)
		}
		if n, _ := p.Drain(buf); n != 1000 {
			t.Fatalf("drained %d", n)
		}
	})
	if allocs != 0 {
		t.Errorf("a drain of 1000 records allocates %v times", allocs)
	}
}

func BenchmarkDrain(b *testing.B) {
	p := open(b, blank())
	buf := make([]Record, 4096)
	for i := range uint64(4 * 1024) {
		write(p, int(i)%4, 10_000_000+i)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.cursor = [ringsMax]uint64{}
		p.peeked = [ringsMax]bool{}
		if n, _ := p.Drain(buf); n != 4096 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/record")
}

func TestCommsAreCheckedAndCleaned(t *testing.T) {
	m := blank()
	p := open(t, m)
	at := p.comms + 3*commBytes
	m.writeUint64(at+comSeq, 4)
	m.writeUint64(at+comID, 99)
	m.writeUint32(at+comState, uint32(CommLive))
	m.writeUint32(at+comSize, 8)
	m.writeUint32(at+comTraffic, 5)
	copy(m[at+comName:], "dp\x1b[2J\xff\n")
	busy := p.comms + 9*commBytes
	m.writeUint64(busy+comSeq, 5) // its writer died
	m.writeUint32(busy+comState, uint32(CommLive))
	m.writeUint32(p.comms+10*commBytes+comState, 77)
	got := p.Comms(nil)
	if len(got) != 1 ||
		got[0].Slot != 3 ||
		got[0].ID != 99 ||
		got[0].Size != 8 ||
		got[0].Name != "dp?[2J??" ||
		got[0].Traffic != TrafficDevice|TrafficOneSided {
		t.Errorf("Comms = %+v", got)
	}
}

func TestMarks(t *testing.T) {
	m := blank()
	p := open(t, m)
	for k := range uint64(100) {
		at := p.control + ctlMarks + k%marksMax*markBytes
		m.writeUint64(at+markIteration, k+10)
		m.writeUint64(at+markStartNs, 1000*k)
		m.writeUint64(at+markSeq, k+1)
		m.writeUint64(p.control+ctlIterationsDone, k+1)
	}
	got, next, lost := p.Marks(0, nil)
	if len(got) != 64 ||
		next != 100 ||
		lost != 36 ||
		got[0] != (Mark{Iteration: 46, StartNs: 36000}) {
		t.Errorf("Marks = %d of them, next %d, lost %d, first %+v", len(got), next, lost, got[0])
	}
	if got, next, lost = p.Marks(100, got); len(got) != 0 || next != 100 || lost != 0 {
		t.Errorf("nothing new: %v %d %d", got, next, lost)
	}
	m.writeUint64(p.control+ctlIterationsDone, ^uint64(0))
	if got, next, _ = p.Marks(100, got); len(got) != 0 || next != ^uint64(0) {
		t.Errorf("absurd count: %v %d", got, next)
	}
}

func TestTimingsOfOneWindow(t *testing.T) {
	m := blank()
	p := open(t, m)
	for seq := uint64(1); seq <= timingSlots+10; seq++ {
		at := p.timings + (seq-1)%timingSlots*timingBytes
		m.writeUint64(at+timSeq, seq)
		m.writeUint64(at+timOrdinal, seq)
		m.writeUint64(at+timDurationNs, 7)
		m.writeUint32(at+timWindow, uint32(seq%2))
		m.writeUint32(at+timOp, uint32(falcon.OpRecv)|FlagTimed<<16)
	}
	m.writeUint64(p.control+ctlTimingHead, timingSlots+10)
	got := p.Timings(1, nil)
	if len(got) != timingSlots/2 ||
		got[0].Ordinal != 11 ||
		got[0].Op != falcon.OpRecv ||
		got[0].Flags != FlagTimed ||
		got[0].DurationNs != 7 {
		t.Errorf("Timings = %d, first %+v", len(got), got[0])
	}
}

func TestOpenRefusesWithOneSentence(t *testing.T) {
	good := blank()
	for _, c := range []struct {
		name  string
		spoil func(image) image
	}{
		{"empty", func(image) image { return nil }},
		{"short", func(m image) image { return m[:100] }},
		{"magic", func(m image) image {
			m[1]++
			return m
		}},
		{"version", func(m image) image {
			m.writeUint32(hdrVersion, shmVersion+1)
			return m
		}},
		{"rings", func(m image) image {
			m.writeUint32(hdrRings, 1<<30)
			return m
		}},
		{"offset", func(m image) image {
			m.writeUint64(hdrRingsOffset, 1<<60)
			return m
		}},
		{"stride", func(m image) image {
			m.writeUint64(hdrRingStride, 0)
			return m
		}},
		{"truncated", func(m image) image { return m[:len(m)-8] }},
		{"clock", func(m image) image {
			m.writeUint64(hdrCalibTicks, 0)
			return m
		}},
		{"unready", func(m image) image {
			m.writeUint64(hdrMagic, 0)
			return m
		}},
	} {
		path := filepath.Join(t.TempDir(), "falcon.j.1")
		if err := os.WriteFile(path, c.spoil(slices.Clone(good)), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Open(path)
		if err == nil {
			t.Errorf("%s: opened %v", c.name, p.Header())
			continue
		}
		t.Log(err)
	}
}

func FuzzImage(f *testing.F) {
	f.Add([]byte{0, 0, 1, 255, 40, 1, 9, 9, 0, 32, 16, 1})
	f.Add(binary.LittleEndian.AppendUint64(nil, ^uint64(0)))
	base, m := blank(), blank()
	f.Fuzz(func(t *testing.T, edits []byte) {
		places := spoil(m, edits)
		if p, err := parseImage("fuzz", m); err == nil {
			exercise(p)
		}
		for _, at := range places { // put right again, which is cheaper than a fresh 4.8 MB
			m.writeUint64(at, base.readUint64(at))
		}
		copy(m[roundUpToPage(headerBytes):][:roundUpToPage(controlBytes)], base[roundUpToPage(headerBytes):])
	})
}

// spoil writes the fuzzer's bytes, three of address and eight of value at a
// time, anywhere in the file, and says where.
func spoil(m image, edits []byte) (places []uint64) {
	for ; len(edits) >= 11; edits = edits[11:] {
		at := (uint64(edits[0]) | uint64(edits[1])<<8 | uint64(edits[2])<<16) % uint64(len(m)-8) &^ 7
		m.writeUint64(at, binary.LittleEndian.Uint64(edits[3:]))
		places = append(places, at)
	}
	return places
}

func exercise(p *Process) {
	buf := make([]Record, 256)
	for range 3 {
		p.Drain(buf)
	}
	p.Comms(nil)
	p.Control()
	p.Marks(0, nil)
	p.Timings(1, nil)
	p.StartProfile(1, MonoNs(), CommMask{})
	p.StopProfile()
	p.SetPeriod(1, 2)
	p.Beat(false)
	_ = p.PutOrder(falcon.Order{
		ID:           3,
		Kind:         falcon.OrderMicroBatches,
		MicroBatches: []int32{1, 2},
	})
	for _, c := range p.Comms(nil) {
		_ = p.Arm(2, soon(), -1, []Cut{{Comm: c.ID, Calls: c.Calls + 1}})
	}
	_ = p.PutOrder(falcon.Order{
		ID:     4,
		Kind:   falcon.OrderPlacement,
		Blocks: []int32{1, 0},
	})
	place, ok := p.Place()
	if ok && (place.Rank < -1 || place.Spent() < 0 || place.Iteration < 0) {
		panic(place)
	}
	p.Pause()
	p.Release()
	exerciseRecovery(p)
	_ = p.PutTest(link(9))
	p.TestResult()
}

// TestHostileImages runs the fuzz target's body on many random spoilings, so
// that every test run covers it.
func TestHostileImages(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	base := blank()
	interesting := []uint64{0, 1, ^uint64(0), 1 << 63, 1 << 31, ringSlots, 7}
	for range 300 {
		m := slices.Clone(base)
		for range 20 {
			at := rng.Uint64N(uint64(len(m) / 8))
			if rng.IntN(2) == 0 {
				at = rng.Uint64N((8192 + 36864 + 49152) / 8)
			}
			if at < 32 { // the header's fixed numbers: refused at once, which is tested above
				at += 32
			}
			m.writeUint64(at*8, interesting[rng.IntN(len(interesting))])
		}
		for i := range ringsMax {
			if rng.IntN(3) == 0 {
				m.writeUint64(base2ring(i), rng.Uint64())
			}
		}
		if p, err := parseImage("hostile", m); err == nil {
			exercise(p)
		}
	}
}

func base2ring(i int) uint64 {
	p := Process{
		rings: roundUpToPage(headerBytes) +
			roundUpToPage(controlBytes) +
			roundUpToPage(commsMax*commBytes) +
			roundUpToPage(timingSlots*timingBytes),
		stride: pageBytes + ringSlots*recordBytes,
	}
	return p.ringOffset(i)
}
