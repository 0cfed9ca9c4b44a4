package agent

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/internal/procstat"
	"github.com/failslow/falcon/agent/ring"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

const (
	unseenEvery  = 10 * time.Second // between looks at all processes of the node
	unseenStep   = 64               // processes looked at in one scan
	unseenMax    = 64               // reported
	unseenAge    = 2 * time.Minute  // until then a rank may not have made its first communicator
	clockHz      = 100              // USER_HZ of /proc, fixed by the kernel's ABI
	environMax   = 1 << 20
	mapsMax      = 8 << 20
	ancestorsMax = 64
)

// unseenRanks finds processes that use NCCL as ranks and that the hook shows
// nothing of: it is not loaded, or the calls pass by it. It looks at a few
// processes in each scan, since a node may have thousands.
type unseenRanks struct {
	proc, job, shmDir string
	node              falcon.Node
	looked            time.Time
	todo              []int
	// by their start: processes that hold no rank of this node, or have been seen
	others map[int]uint64
	next   []unseenRank
	found  []unseenRank
	files  []falcon.Unproven // by files of the hook
	logged map[string]falcon.UnprovenReason
}

type unseenRank struct {
	pid, parent, rank int
	hooked            bool
}

// newUnseenRanks looks below proc; without one it finds nothing.
func newUnseenRanks(proc string, node falcon.Node, job, shmDir string) unseenRanks {
	return unseenRanks{
		proc:   proc,
		node:   node,
		job:    ring.FileJob(job),
		shmDir: shmDir,
		others: map[int]uint64{},
		logged: map[string]falcon.UnprovenReason{},
	}
}

// takeFiles notes the files whose processes are not followed, and logs each once.
// refused are those that the agent has left alone itself.
func (u *unseenRanks) takeFiles(listing ring.Listing, refused map[string]falcon.Unproven, log *slog.Logger) {
	u.files = u.files[:0]
	for _, e := range listing.Unproven {
		if !elsewhere(u.node, e.Device) {
			u.files = append(u.files, e.Unproven)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(refused)) {
		u.files = append(u.files, refused[path])
	}
	u.files = u.files[:min(len(u.files), unseenMax)]
	here := map[string]bool{}
	for _, f := range u.files {
		if here[f.Path] = true; u.logged[f.Path] != f.Reason {
			log.Warn(
				"a process is not followed",
				slog.String("why", f.String()),
				slog.String("file", f.Path),
			)
		}
		u.logged[f.Path] = f.Reason
	}
	maps.DeleteFunc(u.logged, func(path string, _ falcon.UnprovenReason) bool { return !here[path] })
}

// unprovenRank is what keeps a process from being followed that was started under this
// number as this rank; nil for nothing. Where its number can't be known, the rank names it.
func (u *unseenRanks) unprovenRank(rank, pid int) *falcon.Unproven {
	for _, f := range u.files {
		unknown := f.Reason == falcon.UnprovenHidden && int(f.Rank) == rank
		if unknown || u.hasAncestor(f.PID, func(of int) bool { return of == pid }) {
			f.Rank = falcon.Rank(rank)
			return &f
		}
	}
	return nil
}

// scanProcesses looks at the next processes. Those in live have files of the hook.
func (u *unseenRanks) scanProcesses(now time.Time, live []ring.Entry) {
	if len(u.todo) == 0 {
		if now.Sub(u.looked) < unseenEvery {
			return
		}
		u.looked = now
		if u.proc != "" {
			u.todo = processNumbers(u.proc)
		}
		u.forgetEnded()
	}
	n := min(len(u.todo), unseenStep)
	followed := func(pid int) bool {
		return slices.ContainsFunc(live, func(e ring.Entry) bool { return e.PID == pid }) ||
			slices.ContainsFunc(u.files, func(f falcon.Unproven) bool { return f.PID == pid })
	}
	for _, pid := range u.todo[:n] {
		if r, ok := u.examine(pid, followed(pid)); ok {
			u.next = append(u.next, r)
		}
	}
	if u.todo = u.todo[n:]; len(u.todo) == 0 {
		u.found = u.withoutChildren(followed)
		u.next = nil
	}
}

func processNumbers(proc string) []int {
	dir, err := os.Open(proc)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var out []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

func (u *unseenRanks) forgetEnded() {
	kept := make(map[int]uint64, len(u.others))
	for _, pid := range u.todo {
		if start, ok := u.others[pid]; ok {
			kept[pid] = start
		}
	}
	u.others = kept
}

// examine reports whether a process has used NCCL as a rank of this job for long.
func (u *unseenRanks) examine(pid int, followed bool) (unseenRank, bool) {
	st, err := procstat.Read(u.proc, pid)
	if start, ok := u.others[pid]; err != nil || ok && start == st.Start {
		return unseenRank{}, false
	}
	rank, ok := u.rankOf(pid)
	if !ok || followed { // a process whose file is gone has ended its training
		u.others[pid] = st.Start
		return unseenRank{}, false
	}
	if u.age(st.Start) < unseenAge {
		return unseenRank{}, false
	}
	nccl, hooked := u.mappedLibraries(pid)
	return unseenRank{pid: pid, parent: st.Parent, rank: rank, hooked: hooked}, nccl
}

// rankOf reads a process's RANK. What names another job, node or folder is none of
// this agent's.
func (u *unseenRanks) rankOf(pid int) (rank int, ok bool) {
	f, err := os.Open(filepath.Join(u.proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, environMax))
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		key, value, _ := strings.Cut(string(entry), "=")
		switch {
		case key == "RANK":
			rank, err = strconv.Atoi(value)
			ok = err == nil && rank >= 0
		case key == "FALCON_JOB" && ring.FileJob(value) != u.job,
			key == "FALCON_SHM_DIR" &&
				value != "" &&
				filepath.Clean(value) != filepath.Clean(u.shmDir),
			key == "FALCON_DEVICE" && elsewhere(u.node, value):
			return 0, false
		}
	}
	return rank, ok
}

func (u *unseenRanks) age(start uint64) time.Duration {
	text, err := os.ReadFile(filepath.Join(u.proc, "uptime"))
	seconds, _, _ := strings.Cut(string(text), " ")
	up, err2 := strconv.ParseFloat(seconds, 64)
	if err != nil || err2 != nil {
		return 0
	}
	return time.Duration(up*float64(time.Second)) - time.Duration(start)*(time.Second/clockHz)
}

// mappedLibraries reports whether NCCL, as a file or within PyTorch, and the hook or the
// profiler plug-in are in a process.
func (u *unseenRanks) mappedLibraries(pid int) (nccl, hooked bool) {
	f, err := os.Open(filepath.Join(u.proc, strconv.Itoa(pid), "maps"))
	if err != nil {
		return false, false
	}
	defer f.Close()
	for s := bufio.NewScanner(io.LimitReader(f, mapsMax)); s.Scan(); {
		name := filepath.Base(s.Text())
		nccl = nccl || strings.HasPrefix(name, "libnccl.so") || strings.HasPrefix(name, "libtorch_cuda.so")
		hooked = hooked ||
			strings.HasPrefix(name, "libfalcon_hook.so") ||
			strings.HasPrefix(name, "libnccl-profiler-falcon.so")
	}
	return nccl, hooked
}

// withoutChildren leaves out what a rank has started itself, as workers that read
// data: they have its environment and its libraries.
func (u *unseenRanks) withoutChildren(followed func(pid int) bool) []unseenRank {
	ranks := map[int]bool{}
	for _, r := range u.next {
		ranks[r.pid] = true
	}
	var out []unseenRank
	for _, r := range u.next {
		if len(out) < unseenMax &&
			!followed(r.pid) &&
			!u.hasAncestor(r.parent, func(pid int) bool {
				return ranks[pid] || followed(pid)
			}) {
			out = append(out, r)
		}
	}
	return out
}

func (u *unseenRanks) hasAncestor(pid int, is func(pid int) bool) bool {
	for range ancestorsMax {
		if is(pid) {
			return true
		}
		st, err := procstat.Read(u.proc, pid)
		if err != nil || st.Parent <= 1 {
			return false
		}
		pid = st.Parent
	}
	return false
}

// report is what the engine is sent of them.
func (u *unseenRanks) report() []*falconv1.UnseenRank {
	var out []*falconv1.UnseenRank
	for _, f := range u.files {
		out = append(out, convert.UnprovenToProto(f))
		out[len(out)-1].Hooked = true // for engines that know no reasons
	}
	for _, r := range u.found[:min(len(u.found), unseenMax-len(out))] {
		why := falcon.UnprovenNoHook
		if r.hooked {
			why = falcon.UnprovenNoCall
		}
		out = append(out, convert.UnprovenToProto(falcon.Unproven{
			Reason: why,
			Rank:   falcon.Rank(r.rank),
			PID:    r.pid,
		}))
		out[len(out)-1].Hooked = r.hooked
	}
	return out
}
