package proof

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/internal/procstat"
)

// mapsBytes bounds what is read of one process.
const mapsBytes = 64 << 20

// answer is what is known of a question to the kernel.
type answer int

const (
	unknown answer = iota // the kernel does not tell this agent
	no
	yes
)

// status is what /proc says of a process's numbers and users; false where it can't be read.
func (p *Prover) status(pid int) (procstat.Status, bool) {
	st, err := procstat.ReadStatus(p.proc, pid)
	return st, err == nil
}

// inNamespace answers whether a process's own PID namespace is the claim's. A process
// with one number is in this agent's, which needs no right to look at it.
func (p *Prover) inNamespace(pid, numbers int, c Claim) answer {
	if c.PIDNs == 0 {
		return yes // the mapping has to say it
	}
	if numbers == 1 && p.pidNs != 0 {
		return answerOf(c.PIDNs == p.pidNs)
	}
	inode, ok := p.inode(strconv.Itoa(pid), "ns/pid")
	if !ok {
		return unknown
	}
	return answerOf(inode == c.PIDNs)
}

func answerOf(is bool) answer {
	if is {
		return yes
	}
	return no
}

// hasMapped answers whether a process has mapped the claim's file. Some file systems
// show another device in maps than of the file: there the kernel's own link to what is
// mapped decides.
func (p *Prover) hasMapped(pid int, c Claim) answer {
	if c.Ino == 0 {
		return unknown // the file is gone
	}
	f, err := os.Open(p.file(pid, "maps"))
	if err != nil {
		return unknown
	}
	defer f.Close()
	best := no
	if c.Start != 0 {
		best = unknown // where its first thread has ended, it shows nothing
	}
	lines := bufio.NewScanner(io.LimitReader(f, mapsBytes))
	lines.Buffer(make([]byte, 0, 4096), 64<<10)
	for doubt := false; lines.Scan(); {
		m, ok := parseMapping(lines.Text())
		switch {
		case !ok || m.ino != c.Ino:
		case m.dev == c.Dev:
			return yes
		default:
			linked := p.linksTo(pid, m, c)
			if linked == yes {
				return yes
			}
			doubt = doubt || linked == unknown
		}
		best = no
		if doubt {
			best = unknown
		}
	}
	if lines.Err() != nil {
		return unknown
	}
	return best
}

// mapping is one line of maps.
type mapping struct {
	area     string
	dev, ino uint64
}

// parseMapping reads "from-to rights offset major:minor inode path".
func parseMapping(line string) (mapping, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return mapping{}, false
	}
	major, minor, _ := strings.Cut(fields[3], ":")
	a, err1 := strconv.ParseUint(major, 16, 32)
	b, err2 := strconv.ParseUint(minor, 16, 32)
	ino, err3 := strconv.ParseUint(fields[4], 10, 64)
	ok := err1 == nil && err2 == nil && err3 == nil
	return mapping{area: fields[0], dev: unix.Mkdev(uint32(a), uint32(b)), ino: ino}, ok
}

func (p *Prover) linksTo(pid int, m mapping, c Claim) answer {
	var st unix.Stat_t
	if unix.Stat(p.file(pid, filepath.Join("map_files", m.area)), &st) != nil {
		return unknown
	}
	return answerOf(st.Ino == c.Ino && st.Dev == c.Dev)
}

func (p *Prover) inode(process, file string) (uint64, bool) {
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(p.proc, process, file), &st)
	return st.Ino, err == nil
}

func (p *Prover) file(pid int, name string) string {
	return filepath.Join(p.proc, strconv.Itoa(pid), name)
}
