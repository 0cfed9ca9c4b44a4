package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
)

// MaxStackBytes bounds one file of stacks.
const MaxStackBytes = 4 << 20

// Stack is where one rank's main thread was, the innermost place first.
type Stack struct {
	Rank   int
	File   string
	Frames []StackFrame
}

// StackFrame is one place of a stack.
type StackFrame struct {
	Name, File string
	Line       string
}

// Text is "step at train.py:12".
func (f StackFrame) Text() string {
	return fmt.Sprintf("%s at %s:%s", f.Name, path.Base(f.File), f.Line)
}

var (
	// py-spy dump: "    wait (threading.py:320)" below `Thread 123 (idle): "MainThread"`.
	pySpyFrame = regexp.MustCompile(`^\s+(\S.*?) \(([^()]+):(\d+)\)\s*$`)
	// faulthandler: `  File "train.py", line 12 in step` below "Thread 0x…" or "Current thread 0x…".
	faultFrame  = regexp.MustCompile(`^\s+File "([^"]+)", line (\d+) in (\S+)`)
	stackThread = regexp.MustCompile(`(?i)^\s*(current )?thread (0x)?[0-9a-f]+`)
)

// LooksLikeStacks reports whether a file begins as py-spy's or faulthandler's
// output does.
func LooksLikeStacks(head []byte) bool {
	for _, line := range bytes.Split(head, []byte("\n")) {
		if stackThread.Match(line) ||
			bytes.HasPrefix(line, []byte("Process ")) ||
			bytes.HasPrefix(line, []byte("Fatal Python error")) {
			return true
		}
	}
	return false
}

// AddStacks reads one rank's stacks by py-spy dump or faulthandler, plain. The
// main thread's counts: py-spy names it, faulthandler writes it last.
func (rec *Records) AddStacks(name string, r io.Reader) error {
	s := Stack{Rank: rankFromName(name), File: clipField(name)}
	if s.Rank == unknown {
		return malformed(0, "the stacks' rank is unknown; end the file's name with it, as in stack.3.txt")
	}
	lines := bufio.NewScanner(io.LimitReader(r, MaxStackBytes))
	var threads [][]StackFrame
	mainThread := -1
	for lines.Scan() {
		line := lines.Text()
		if stackThread.MatchString(line) {
			if strings.Contains(line, "MainThread") {
				mainThread = len(threads)
			}
			threads = append(threads, nil)
			continue
		}
		if f, ok := FrameOf(line); ok && len(threads) > 0 {
			if at := len(threads) - 1; len(threads[at]) < 64 {
				threads[at] = append(threads[at], f)
			}
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("trace: reading: %w", err)
	}
	if len(threads) == 0 {
		return malformed(0, "no thread is in it; give what py-spy dump or faulthandler writes")
	}
	if mainThread < 0 {
		mainThread = len(threads) - 1
	}
	s.Frames = threads[mainThread]
	if len(rec.stacks) >= MaxFiles {
		return fmt.Errorf("%w: more than %d files of stacks", ErrTooLarge, MaxFiles)
	}
	rec.stacks = append(rec.stacks, s)
	return nil
}

// FrameOf reads one frame of either.
func FrameOf(line string) (StackFrame, bool) {
	if m := pySpyFrame.FindStringSubmatch(line); m != nil {
		return StackFrame{clipField(m[1]), clipToLength(m[2], 200), m[3]}, true
	}
	if m := faultFrame.FindStringSubmatch(line); m != nil {
		return StackFrame{clipField(m[3]), clipToLength(m[1], 200), m[2]}, true
	}
	return StackFrame{}, false
}

// Stacks are the ranks' stacks in the order of their files.
func (rec *Records) Stacks() []Stack { return rec.stacks }
