package ring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/proof"
)

// Errors of this package.
var (
	// ErrCorrupt is wrapped when a file cannot be the hook's, or changed its size.
	ErrCorrupt = errors.New("ring: corrupt shared-memory file")
	// ErrVersion is wrapped when the hook of another release has made a file.
	ErrVersion = errors.New("ring: shared-memory file of another version")
	// ErrNotReady is wrapped while the hook is still filling a new file: try again.
	ErrNotReady = errors.New("ring: file not ready")
	// ErrOrder is wrapped when an order cannot be put into the mailbox.
	ErrOrder = errors.New("ring: bad order")
	// ErrForeign is wrapped when a file was made by another user than the one
	// whose process it speaks for.
	ErrForeign = errors.New("ring: shared-memory file of another user")
)

// Header identifies a process. Values are those it started with.
type Header struct {
	PID                    int
	Rank, World, LocalRank int // of the torchrun variables; -1 when unset
	Job, Device            string
	StartUnixNs            int64
	StartMonoNs            int64 // the same instant by CLOCK_MONOTONIC
	// Claim is by what the process is proven; PID above is its number in its own
	// namespace, until an agent that knows its own number of it sets that.
	Claim proof.Claim
}

// Process is one training process's shared memory. Use it from one goroutine
// at a time, and Close it.
type Process struct {
	path   string
	mem    image
	header Header
	err    error

	control, comms, timings, rings, stride uint64
	timingSlots                            uint64

	tsc    bool
	clock  clock
	cursor [ringsMax]uint64
	peeked [ringsMax]bool
	peek   [ringsMax]Record
}

// Open maps the file at path. The error wraps ErrNotReady while the hook is
// still creating it, ErrCorrupt when it is not the hook's, or fs.ErrNotExist.
// Records written before Open are read from the oldest that is still there.
func Open(path string) (*Process, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("ring: cannot open the shared memory of a training process: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("ring: cannot look at %s: %w", path, err)
	}
	if !info.Mode().IsRegular() ||
		info.Size() < headerBytes ||
		info.Size() > 1<<30 {
		return nil, sizeError(path, info)
	}
	mem, err := unix.Mmap(
		int(f.Fd()),
		0,
		int(info.Size()),
		unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED,
	)
	if err != nil {
		return nil, fmt.Errorf("ring: cannot map %s: %w", path, err)
	}
	p, err := parseImage(path, mem)
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		p.header.Claim.Dev = st.Dev
		p.header.Claim.Ino = st.Ino
		p.header.Claim.UID = st.Uid
	}
	if e, ok := parseName(filepath.Split(path)); ok && e.PID != p.header.PID {
		return nil, errors.Join(
			fmt.Errorf("%w: %s says that it is of process %d: remove it", ErrForeign, path, p.header.PID),
			p.Close(),
		)
	}
	return p, nil
}

func sizeError(path string, info os.FileInfo) error {
	if info.Mode().IsRegular() && info.Size() == 0 {
		return fmt.Errorf("%w: %s is still empty", ErrNotReady, path)
	}
	return fmt.Errorf("%w: %s has %d bytes, which no version of the hook writes; remove it",
		ErrCorrupt, path, info.Size())
}

// parseImage checks the header of an image and sets the cursors.
func parseImage(path string, mem image) (p *Process, err error) {
	p = &Process{path: path, mem: mem}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer p.guardFault(&err)
	if err = p.checkHeader(); err != nil {
		return nil, err
	}
	p.header = Header{
		PID:         int(mem.readUint32(hdrPID)),
		Rank:        int(mem.readInt32(hdrRank)),
		World:       int(mem.readInt32(hdrWorld)),
		LocalRank:   int(mem.readInt32(hdrLocalRank)),
		StartUnixNs: mem.readInt64(hdrStartUnixNs),
		StartMonoNs: mem.readInt64(hdrStartMonoNs),
		Job:         printableName(mem.copyName(hdrJob)),
		Device:      printableName(mem.copyName(hdrDevice)),
		Claim:       claimOf(mem),
	}
	p.tsc = mem.readUint32(hdrClock) == clockTSC
	if err = p.readClock(); err != nil {
		return nil, err
	}
	for i := range p.cursor {
		if head := mem.readUint64(p.ringOffset(i) + rngHead); head > ringSlots {
			p.cursor[i] = head - ringSlots
		}
	}
	return p, nil
}

// checkHeader compares what the header promises with what this reader expects and
// with the size of the file. The layout of one version is fixed, so every
// number has exactly one right value.
func (p *Process) checkHeader() error {
	m := p.mem
	magic := m.readUint64(hdrMagic)
	if magic == 0 {
		return fmt.Errorf("%w: %s is still being filled", ErrNotReady, p.path)
	}
	if magic != shmMagic {
		return fmt.Errorf("%w: %s does not start with the hook's magic number; remove it", ErrCorrupt, p.path)
	}
	version := m.readUint32(hdrVersion)
	length := uint64(headerBytes)
	switch {
	case version == oldestVersion:
		length = headerBytesOlder
	case version != shmVersion:
		return fmt.Errorf(
			"%w: %s is of version %d, this agent reads versions %d and %d; install hook and agent of one release",
			ErrVersion, p.path, version, oldestVersion, shmVersion,
		)
	}
	p.control = roundUpToPage(headerBytes)
	p.comms = p.control + roundUpToPage(controlBytes)
	p.timings = p.comms + roundUpToPage(commsMax*commBytes)
	p.timingSlots = uint64(m.readUint32(hdrTimingSlots))
	if p.timingSlots != timingSlots && p.timingSlots != timingSlotsOlder {
		return fmt.Errorf(
			"%w: number of timings of %s is %d instead of %d; remove the file if its process is gone",
			ErrCorrupt, p.path, p.timingSlots, timingSlots,
		)
	}
	p.rings = p.timings + roundUpToPage(p.timingSlots*timingBytes)
	p.stride = pageBytes + ringSlots*recordBytes
	return p.checkNumbers(length)
}

// timingSlotsOlder is what hooks wrote before they had room for iterations of
// thousands of calls; jobs outlive an agent's upgrade.
const timingSlotsOlder = 8192

func (p *Process) checkNumbers(length uint64) error {
	m := p.mem
	total := p.rings + ringsMax*p.stride
	for _, f := range []struct {
		name      string
		got, want uint64
	}{
		{"header size", uint64(m.readUint32(hdrHeaderBytes)), length},
		{"number of rings", uint64(m.readUint32(hdrRings)), ringsMax},
		{"ring size", uint64(m.readUint32(hdrRingSlots)), ringSlots},
		{"number of communicators", uint64(m.readUint32(hdrComms)), commsMax},
		{"number of orders", uint64(m.readUint32(hdrOrderSlots)), orderSlots},
		{"control offset", m.readUint64(hdrControlOffset), p.control},
		{"communicator offset", m.readUint64(hdrCommsOffset), p.comms},
		{"timing offset", m.readUint64(hdrTimingsOffset), p.timings},
		{"ring offset", m.readUint64(hdrRingsOffset), p.rings},
		{"ring stride", m.readUint64(hdrRingStride), p.stride},
		{"stated size", m.readUint64(hdrFileBytes), total},
		{"size of the file", uint64(len(m)), total},
	} {
		if f.got != f.want {
			return fmt.Errorf("%w: %s of %s is %d instead of %d; remove the file if its process is gone",
				ErrCorrupt, f.name, p.path, f.got, f.want)
		}
	}
	return nil
}

func roundUpToPage(n uint64) uint64 {
	return (n + pageBytes - 1) / pageBytes * pageBytes
}

func (p *Process) ringOffset(i int) uint64 {
	return p.rings + uint64(i)*p.stride
}

// guarded runs what touches the image, unless that has failed before.
func (p *Process) guarded(touch func() error) (err error) {
	if p.err != nil {
		return p.err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer p.guardFault(&err)
	return touch()
}

// access is guarded for what can't fail by itself; Err has the fault.
func (p *Process) access(touch func()) {
	_ = p.guarded(func() error {
		touch()
		return nil
	})
}

// guardFault turns a fault on the mapping (the file was truncated) into an error,
// under debug.SetPanicOnFault, which makes such faults of this goroutine
// recoverable.
func (p *Process) guardFault(err *error) {
	r := recover()
	if r == nil {
		return
	}
	if f, ok := r.(interface{ Addr() uintptr }); !ok || f.Addr() == 0 {
		panic(r)
	}
	p.err = fmt.Errorf("%w: %s shrank while it was mapped", ErrCorrupt, p.path)
	*err = p.err
}

// Header is what the process said about itself at its start.
func (p *Process) Header() Header { return p.header }

// Path is the file's.
func (p *Process) Path() string { return p.path }

// Err is the fault that made this Process useless, nil while it is fine.
func (p *Process) Err() error { return p.err }

// Close unmaps the file. Nothing may be called afterwards.
func (p *Process) Close() error {
	mem := p.mem
	p.mem, p.err = nil, fmt.Errorf("ring: %s: %w", p.path, os.ErrClosed)
	if mem == nil {
		return nil
	}
	if err := unix.Munmap(mem); err != nil {
		return fmt.Errorf("ring: cannot unmap %s: %w", p.path, err)
	}
	return nil
}
