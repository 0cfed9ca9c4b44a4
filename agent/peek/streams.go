package peek

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what is looked at to find a process's output.
const (
	environMost = 1 << 20
	partsMost   = 8
	matchesMost = 64 // files that a pattern of the configuration may match
)

// Stream is where one of a process's outputs goes.
type Stream struct {
	Source string   `json:"source"` // "stdout", "stderr", or "file" of the configuration
	Path   string   `json:"path"`
	File   identity `json:"file"` // zero where it was not a file
}

// Streams finds out where a living process's outputs go. files are the patterns of the
// configuration: {NAME} is a variable of the process's environment.
func Streams(proc string, pid int, files []string) []Stream {
	var out []Stream
	for fd, source := range map[int]string{1: "stdout", 2: "stderr"} {
		if path, err := os.Readlink(fdPath(proc, pid, fd)); err == nil {
			out = append(out, Stream{
				Source: source,
				Path:   path,
				File:   fileAt(fdPath(proc, pid, fd)),
			})
		}
	}
	// stdout first
	slices.SortFunc(out, func(a, b Stream) int {
		return strings.Compare(b.Source, a.Source)
	})
	if len(out) == 2 && out[0].Path == out[1].Path {
		out[0].Source, out = "stdout and stderr", out[:1]
	}
	if len(files) == 0 {
		return out
	}
	env := environOf(proc, pid)
	for _, pattern := range files {
		if path, ok := Expand(pattern, env); ok && len(out) < partsMost {
			out = append(out, Stream{Source: "file", Path: path})
		}
	}
	return out
}

func fdPath(proc string, pid, fd int) string {
	return filepath.Join(proc, strconv.Itoa(pid), "fd", strconv.Itoa(fd))
}

func fileAt(path string) identity {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return identity{}
	}
	return identityOf(st)
}

func environOf(proc string, pid int) map[string]string {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, environMost))
	env := map[string]string{}
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		if key, value, ok := strings.Cut(string(entry), "="); ok {
			env[key] = value
		}
	}
	return env
}

var (
	variable = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	// no folder above, no pattern
	harmless = regexp.MustCompile(`^[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
)

// Expand puts a process's environment into a pattern. False where a variable is missing, or
// holds what could name another folder: the environment is the process's, not ours.
func Expand(pattern string, env map[string]string) (string, bool) {
	ok := true
	path := variable.ReplaceAllStringFunc(pattern, func(word string) string {
		value := env[word[1:len(word)-1]]
		ok = ok && harmless.MatchString(value)
		return value
	})
	return path, ok
}

// lateMost is how long after a process's end its launcher may write to its file.
const lateMost = 5 * time.Second

// newestMatch is the file of a pattern that was changed last, of a process that has ended the
// last one that is not a later process's; the pattern itself where it matches none.
func newestMatch(pattern string, endedNs int64) string {
	if !strings.ContainsAny(pattern, "*?[") {
		return pattern
	}
	found, _ := filepath.Glob(pattern) // the configuration was checked
	best := pattern
	newest := int64(-1)
	for _, path := range found[:min(len(found), matchesMost)] {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil ||
			endedNs > 0 && st.Mtim.Nano() > endedNs+lateMost.Nanoseconds() {
			continue
		}
		if st.Mtim.Nano() > newest {
			best = path
			newest = st.Mtim.Nano()
		}
	}
	return best
}

// process is one whose outputs are read.
type process struct {
	pid     int // 0 = it has ended
	uid     int // the owner that its files must have
	endedNs int64
	streams []Stream
}

func (p process) tails(proc string, lines int) []*falconv1.PeekPart {
	var out []*falconv1.PeekPart
	kept := slices.ContainsFunc(p.streams, func(s Stream) bool { return s.Source == "file" })
	for _, s := range p.streams {
		part := p.tailOfStream(proc, s, lines)
		if kept && s.Source != "file" && len(part.Lines) == 0 && part.Bytes == 0 {
			continue // the launcher's files are what people want to see
		}
		out = append(out, part)
	}
	return out
}

func (p process) tailOfStream(proc string, s Stream, lines int) *falconv1.PeekPart {
	switch {
	case s.Source == "file":
		path := newestMatch(s.Path, p.endedNs)
		return tailOf(s.Source, path, path, p.uid, lines, false, identity{})
	case p.pid > 0: // by what it has open, which may have another name by now
		fd := 1
		if s.Source == "stderr" {
			fd = 2
		}
		return tailOf(
			s.Source,
			fdPath(proc, p.pid, fd),
			s.Path,
			p.uid,
			lines,
			true,
			identity{},
		)
	case s.File == identity{}:
		return &falconv1.PeekPart{
			Source: s.Source,
			Path:   printable(s.Path),
			Note:   "was not a file: what went there is not kept by this node",
		}
	}
	return tailOf(s.Source, s.Path, s.Path, p.uid, lines, false, s.File)
}

// CheckPatterns reports the first pattern that can't be used.
func CheckPatterns(files []string) error {
	if len(files) > partsMost-2 {
		return fmt.Errorf("%d patterns, at most %d are possible", len(files), partsMost-2)
	}
	for _, f := range files {
		if !filepath.IsAbs(f) {
			return fmt.Errorf("%q is no absolute path", f)
		}
		if _, err := filepath.Match(variable.ReplaceAllString(f, "x"), ""); err != nil {
			return fmt.Errorf("%q: %w", f, err)
		}
		if rest := variable.ReplaceAllString(f, ""); strings.ContainsAny(rest, "{}") {
			return fmt.Errorf("%q has a brace that is around no variable's name, such as {SLURM_PROCID}", f)
		}
	}
	return nil
}
