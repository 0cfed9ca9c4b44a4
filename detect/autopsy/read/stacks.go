package read

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/failslow/falcon/detect/autopsy"
	"github.com/failslow/falcon/detect/trace"
)

// stacks reads what py-spy dump and faulthandler write: the main thread of each process counts.
type stacks struct {
	file  string
	who   autopsy.Who
	pid   int64
	main  bool // the thread that is read is the main one
	begun bool
	now   autopsy.Stack
	found []autopsy.Stack
}

const (
	stacksMost = 1 << 14
	framesMost = 64
)

var (
	spyProcess = regexp.MustCompile(`^Process (\d+):`)
	spyThread  = regexp.MustCompile(`^Thread (\S+) \((?:idle|active)[^)]*\)(?:: "([^"]*)")?`)
	faultHead  = regexp.MustCompile(`^(?:Current t|T)hread 0x[0-9a-f]+`)
	rankOfFile = regexp.MustCompile(
		`(?i)(?:rank|stack|trace|pyspy|py-spy|worker|log|stdout|stderr|out|err)[._-]?(\d+)(?:\.|_|$)`,
	)
	hostOfFile = regexp.MustCompile(`(?i)(?:^|[._-])((?:node|host|gpu|worker)-?\w*?\d+)(?:\.|_|$)`)
)

// take reports whether the line is of a stack.
func (s *stacks) take(l *line) bool {
	if m := spyProcess.FindStringSubmatch(l.text); m != nil {
		s.finish()
		s.pid = whole(m[1], 0)
		s.begun = true
		return true
	}
	if m := spyThread.FindStringSubmatch(l.text); m != nil {
		s.finish()
		s.begun, s.main = true, m[2] == "MainThread" || m[1] == strconv.FormatInt(s.pid, 10)
		s.now.Source = l.source(s.file)
		return true
	}
	if faultHead.MatchString(l.text) { // the main thread comes last: a later one replaces an earlier one
		s.now = autopsy.Stack{Source: l.source(s.file)}
		s.begun = true
		s.main = true
		return true
	}
	if !s.begun {
		return false
	}
	f, ok := trace.FrameOf(l.text)
	if !ok {
		return strings.HasPrefix(l.text, "Python v")
	}
	if s.main && len(s.now.Frames) < framesMost {
		s.now.Frames = append(s.now.Frames, clipped(f.Name+" at "+shortPath(f.File)+":"+f.Line))
	}
	return true
}

// shortPath is the end of a path that tells modules apart.
func shortPath(p string) string {
	dir, file := path.Split(p)
	return path.Join(path.Base(dir), file)
}

func (s *stacks) finish() {
	if s.main && len(s.now.Frames) > 0 && len(s.found) < stacksMost {
		s.now.Pid, s.now.Who = s.pid, s.who
		s.found = append(s.found, s.now)
	}
	s.now = autopsy.Stack{}
	s.main = false
}

// whoOf is whom a file's name speaks of, as in rank_3.log, stack.12.txt and trace-node48.out.
func whoOf(name string) autopsy.Who {
	who := autopsy.Nobody
	base := path.Base(name)
	if m := rankOfFile.FindStringSubmatch(base); m != nil {
		who.Rank = int(whole(m[1], -1))
	}
	if m := hostOfFile.FindStringSubmatch(base); m != nil {
		who.Host = m[1]
	}
	return who
}
