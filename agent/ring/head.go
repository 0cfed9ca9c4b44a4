package ring

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/proof"
)

// Formats that this agent reads. The header of an older one ends before the proof of
// who has made it, and reads as zeros from there.
const (
	oldestVersion    = 5
	headerBytesOlder = 280 // of format 5
)

// head is what a file says of itself before it is mapped.
type head struct {
	magic         uint64
	version       int
	rank          int
	device        string
	startMonoNs   int64
	heartbeatNs   int64
	refusedCall   uint32
	refusedErrno  int32
	claim         proof.Claim
	whole, filled bool // it has a header, and the hook has written it
}

// readHead looks at a file without mapping it. Where it can't be opened, the error says
// why, and the claim has what the file system tells.
func readHead(path string) (head, error) {
	var h head
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return h, err
	}
	h.rank = -1
	h.claim.Dev = st.Dev
	h.claim.Ino = st.Ino
	h.claim.UID = st.Uid
	f, err := os.OpenFile(
		path,
		os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0,
	)
	if err != nil {
		return h, err
	}
	defer func() { _ = f.Close() }()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return h, err
	}
	var b [headerBytes + 8]byte // words are read as words
	n, _ := f.ReadAt(b[:headerBytes], 0)
	h.parseHead(b[:], n)
	h.claim.Dev = st.Dev
	h.claim.Ino = st.Ino
	h.claim.UID = st.Uid
	var beat [8]byte
	if n, _ := f.ReadAt(beat[:], pageBytes+ctlHeartbeatNs); n == len(beat) {
		h.heartbeatNs = int64(binary.LittleEndian.Uint64(beat[:]))
	}
	return h, nil
}

func (h *head) parseHead(b []byte, n int) {
	m := image(b)
	h.whole = n >= headerBytesOlder
	h.magic, h.version = m.readUint64(hdrMagic), int(m.readUint32(hdrVersion))
	h.filled = h.magic != 0
	if h.magic != shmMagic {
		return
	}
	h.rank, h.startMonoNs = int(m.readInt32(hdrRank)), m.readInt64(hdrStartMonoNs)
	h.refusedCall, h.refusedErrno = m.readUint32(hdrRefused), m.readInt32(hdrRefusedErrno)
	h.device, h.claim = printableName(m.copyName(hdrDevice)), claimOf(m)
}

// claimOf is what a header says of the process that has made it.
func claimOf(m image) proof.Claim {
	return proof.Claim{
		PID:    int(m.readUint32(hdrPID)),
		Start:  m.readUint64(hdrProcStart),
		PIDNs:  m.readUint64(hdrPIDNs),
		TimeNs: m.readUint64(hdrTimeNs),
		Boot:   m.copyBoot(hdrBoot),
	}
}

// unreadable returns why this agent can't read the file of a process that is proven.
func (h *head) unreadable(u *falcon.Unproven) falcon.UnprovenReason {
	switch {
	case h.version < oldestVersion || h.version > shmVersion:
		u.HookFormat = h.version
		u.AgentFormat = shmVersion
		return falcon.UnprovenVersion
	case h.refusedCall != 0:
		u.RefusedCall, u.RefusedBy = refusedCalls[h.refusedCall], unix.ErrnoName(unix.Errno(h.refusedErrno))
		return falcon.UnprovenRefused
	}
	return falcon.UnprovenNone
}

// refusedCalls are what the kernel may refuse the hook.
var refusedCalls = map[uint32]string{
	refusedSize:   "ftruncate or madvise",
	refusedMap:    "mmap",
	refusedThread: "a thread",
}
