// Package proof finds the process that a file of the hook speaks for, and proves that it
// is that one: a number alone is a name, which another process has in another PID
// namespace, or later.
//
// It guarantees that a process is found by its namespace, its number there, its start,
// and, where the kernel shows it, the mapping of that very file; and that what can't be
// proven is said with the reason. It must not signal anybody, and must not take a name
// for a process.
package proof

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/internal/procstat"
)

// initialPIDNs is the inode of the machine's first PID namespace, fixed by the kernel
// (PROC_PID_INIT_INO). From there every other one can be seen.
const initialPIDNs = 0xEFFFFFFC

// Claim is what a file says of the process that has made it.
type Claim struct {
	PID           int    // in its own namespace
	Start         uint64 // clock ticks since boot, 0 = not said, as by hooks before format 6
	PIDNs, TimeNs uint64 // inodes, 0 = not said
	Boot          string // boot id, "" = not said
	Dev, Ino      uint64 // of the file
	UID           uint32 // whose file it is
}

// Name is how the process names itself to others that share a folder with it: by its
// number, and by its PID namespace unless that is the machine's first; "" = not known.
func (c Claim) Name() string {
	if c.PID == 0 {
		return ""
	}
	name := strconv.Itoa(c.PID)
	if c.PIDNs != 0 && c.PIDNs != initialPIDNs {
		name += "-" + strconv.FormatUint(c.PIDNs, 10)
	}
	return name
}

// Process is a process for certain, by the number that this agent sees.
type Process struct {
	PID   int
	Start uint64 // clock ticks since boot, as this agent reads it
}

// Outcome is what a search has come to.
type Outcome int

// The outcomes.
const (
	Found    Outcome = iota // the process runs, and is proven
	Gone                    // it has ended
	Unproven                // it may run: the reason says what is in the way
)

// Prover looks at processes below one mount of /proc. Use it from one goroutine.
type Prover struct {
	proc          string
	pidNs, timeNs uint64
	boot          string
	own           bool // /proc is of this agent's PID namespace
	whole         bool // it shows the processes of others
	inner         map[int][]int
}

// NewProver returns a Prover over the mount at proc, normally /proc.
func NewProver(proc string) *Prover {
	self, err := os.Readlink(filepath.Join(proc, "self"))
	boot, _ := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	p := &Prover{proc: proc, boot: strings.TrimSpace(string(boot))}
	p.own = err == nil && self == strconv.Itoa(os.Getpid())
	_, p.whole = p.status(1)
	p.pidNs, _ = p.inode("self", "ns/pid")
	p.timeNs, _ = p.inode("self", "ns/time")
	return p
}

// PIDNs is the inode of the agent's PID namespace, 0 = unknown.
func (p *Prover) PIDNs() uint64 { return p.pidNs }

// SeesAll reports whether every process of the machine has a number here.
func (p *Prover) SeesAll() bool {
	return p.own && p.whole && p.pidNs == initialPIDNs
}

// Renew forgets which processes there are, so that the next search looks again.
func (p *Prover) Renew() {
	p.inner = nil
}

// Find looks for the process of a claim. The reason is of Unproven alone.
func (p *Prover) Find(c Claim) (Process, Outcome, falcon.UnprovenReason) {
	if !p.own {
		return Process{}, Unproven, falcon.UnprovenHidden
	}
	if c.Boot != "" && p.boot != "" && c.Boot != p.boot {
		return Process{}, Gone, falcon.UnprovenNone // of a machine before its last start
	}
	worst := falcon.UnprovenNone
	for _, pid := range p.candidates(c) {
		found, why := p.Check(pid, c)
		if why == falcon.UnprovenNone && found.PID > 0 {
			return found, Found, why
		}
		worst = max(worst, why)
	}
	switch {
	case worst != falcon.UnprovenNone:
		return Process{}, Unproven, worst
	case p.whole && c.PIDNs == p.pidNs || p.SeesAll():
		return Process{}, Gone, falcon.UnprovenNone
	}
	return Process{}, Unproven, falcon.UnprovenHidden
}

// Numbered reports whether any process has this number, here or in its own namespace.
func (p *Prover) Numbered(pid int) bool {
	if _, ok := p.running(pid); ok {
		return true
	}
	return len(p.candidates(Claim{PID: pid})) > 1
}

// candidates are the processes that may be the one of a claim, by the numbers here.
func (p *Prover) candidates(c Claim) []int {
	if c.PIDNs != 0 && c.PIDNs == p.pidNs {
		return []int{c.PID}
	}
	if p.inner == nil {
		p.inner = p.innerNumbers()
	}
	if c.PIDNs != 0 {
		return p.inner[c.PID]
	}
	return append([]int{c.PID}, p.inner[c.PID]...)
}

// innerNumbers are the processes of other namespaces, by their numbers in their own.
func (p *Prover) innerNumbers() map[int][]int {
	out := map[int][]int{}
	dir, err := os.Open(p.proc)
	if err != nil {
		return out
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, ok := p.status(pid); ok && len(st.Numbers) > 1 {
			last := st.Numbers[len(st.Numbers)-1]
			out[last] = append(out[last], pid)
		}
	}
	return out
}

// Check reports whether a process is the one of a claim. Where it is not, the process is
// empty; the reason is what keeps it from being known.
func (p *Prover) Check(pid int, c Claim) (Process, falcon.UnprovenReason) {
	st, ok := p.status(pid)
	if !p.own || !ok || st.Numbers[len(st.Numbers)-1] != c.PID {
		return Process{}, falcon.UnprovenNone
	}
	found, ok := p.running(pid)
	if !ok || p.startsElse(found.Start, c) {
		return Process{}, falcon.UnprovenNone
	}
	switch p.inNamespace(pid, len(st.Numbers), c) {
	case no:
		return Process{}, falcon.UnprovenNone
	case unknown:
		return Process{}, falcon.UnprovenUnreadable
	}
	mapped := p.hasMapped(pid, c)
	switch {
	case mapped == no:
		return Process{}, falcon.UnprovenNone
	case mapped == unknown && (c.Start == 0 || !p.sameTime(c)):
		return Process{}, falcon.UnprovenUnreadable
	case c.UID != 0 && !slices.Contains(st.Users, c.UID):
		return Process{}, falcon.UnprovenForged // root needs no such file to speak for a process
	}
	return found, falcon.UnprovenNone
}

// running is the process with this number; false where none runs, or what is left of it
// waits for its parent.
func (p *Prover) running(pid int) (Process, bool) {
	s, err := procstat.Read(p.proc, pid)
	ended := s.State == 'X' || s.State == 'Z' && s.Threads <= 1
	return Process{PID: pid, Start: s.Start}, err == nil && !ended
}

// Runs reports whether a process that was found still runs.
func (p *Prover) Runs(was Process) bool {
	now, ok := p.running(was.PID)
	return ok && now == was
}

// Alive reports whether a process with this number runs: one that only waits to be collected
// does not.
func (p *Prover) Alive(pid int) bool {
	_, ok := p.running(pid)
	return ok
}

// startsElse reports whether the process did not begin when the claim says.
func (p *Prover) startsElse(start uint64, c Claim) bool {
	return c.Start != 0 && p.sameTime(c) && start != c.Start
}

// sameTime reports whether the starts that both read are of one clock.
func (p *Prover) sameTime(c Claim) bool {
	return c.TimeNs == 0 || p.timeNs == 0 || c.TimeNs == p.timeNs
}
