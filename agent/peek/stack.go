package peek

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of a look at a process's threads.
const (
	threadsMost  = 1024
	groupsMost   = 64 // that are shown
	framesMost   = 24 // of one kernel stack
	threadFile   = 16 << 10
	stackWithin  = time.Second
	frameNameEnd = "+0x"
)

// thread is where one thread stands.
type thread struct {
	id    int
	name  string
	state string // "S (sleeping)"
	wchan string // what it waits for in the kernel, "" = nothing, or it may not be read
	calls string // the kernel's functions, innermost first
}

// Threads reads where a process's threads stand from /proc. The process goes on meanwhile: no
// debugger is attached, no signal is sent. Threads that stand alike are counted together.
func Threads(proc string, pid int, now func() time.Time) *falconv1.PeekPart {
	dir := filepath.Join(proc, strconv.Itoa(pid), "task")
	part := &falconv1.PeekPart{Source: "threads", Path: dir}
	ids, err := threadIDs(dir)
	if err != nil {
		part.Note = whyNoThreads(err)
		return part
	}
	deadline := now().Add(stackWithin)
	var all []thread
	hidden := false
	for _, id := range ids {
		if now().After(deadline) {
			part.Note = fmt.Sprintf("the first %d of %d threads: the others took too long",
				len(all), len(ids))
			break
		}
		t, noStack, ok := readThread(dir, id)
		hidden = hidden || noStack
		if ok {
			all = append(all, t)
		}
	}
	if hidden {
		part.Note = joinNotes("stacks in the kernel need CAP_SYS_ADMIN: run the agent as root", part.Note)
	}
	part.Lines = describeThreads(all, pid)
	return part
}

func whyNoThreads(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "the process has just ended"
	}
	return "can't be read: " + plainError(err)
}

func threadIDs(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(threadsMost)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var out []int
	for _, n := range names {
		if id, err := strconv.Atoi(n); err == nil {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out, nil
}

// readThread reads one thread; noStack reports whether its stack may not be read.
func readThread(dir string, id int) (t thread, noStack, ok bool) {
	at := filepath.Join(dir, strconv.Itoa(id))
	status, err := readSmall(filepath.Join(at, "status"))
	if err != nil {
		return t, false, false // it has ended
	}
	t.id = id
	for line := range strings.SplitSeq(status, "\n") {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Name":
			t.name = Clean(strings.TrimSpace(value))
		case "State":
			t.state = Clean(strings.TrimSpace(value))
		}
	}
	if w, err := readSmall(filepath.Join(at, "wchan")); err == nil && w != "0" {
		t.wchan = Clean(w)
	}
	stack, err := readSmall(filepath.Join(at, "stack"))
	t.calls = kernelFrames(stack)
	return t, errors.Is(err, fs.ErrPermission), true
}

func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, threadFile))
	return string(text), err
}

// kernelFrames are the functions of a kernel stack, "[<0>] futex_wait+0x1/0x2" a line.
func kernelFrames(stack string) string {
	var out []string
	for line := range strings.SplitSeq(stack, "\n") {
		_, name, ok := strings.Cut(line, "] ")
		if !ok || len(out) >= framesMost {
			continue
		}
		name, _, _ = strings.Cut(name, frameNameEnd)
		out = append(out, Clean(name))
	}
	return strings.Join(out, " < ")
}

// describeThreads lists the main thread, then the others by how many stand alike.
func describeThreads(all []thread, main int) []string {
	type group struct {
		thread
		count int
	}
	var groups []group
	for _, t := range all {
		i := slices.IndexFunc(groups, func(g group) bool {
			return g.id != main &&
				t.id != main &&
				g.name == t.name &&
				g.state == t.state &&
				g.wchan == t.wchan &&
				g.calls == t.calls
		})
		if i < 0 {
			groups = append(groups, group{t, 0})
			i = len(groups) - 1
		}
		groups[i].count++
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Or(
			cmp.Compare(boolInt(b.id == main), boolInt(a.id == main)),
			cmp.Compare(b.count, a.count),
		)
	})
	var out []string
	for _, g := range groups[:min(len(groups), groupsMost)] {
		who := fmt.Sprintf("thread %d %s", g.id, g.name)
		switch {
		case g.id == main:
			who = fmt.Sprintf("main thread %d %s", g.id, g.name)
		case g.count > 1:
			who = fmt.Sprintf("%d threads %s", g.count, g.name)
		}
		line := who + ": " + g.state
		if g.wchan != "" {
			line += ", waits in " + g.wchan
		}
		out = append(out, line)
		if g.calls != "" {
			out = append(out, Clean("    "+g.calls))
		}
	}
	if n := len(groups) - groupsMost; n > 0 {
		out = append(out, fmt.Sprintf("and %d kinds of threads more", n))
	}
	return out
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
