package agent

import (
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon/agent/peek"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Bounds of what is read of a process that has ended.
const (
	wordsLines = 60  // from the end of its output
	wordsMost  = 240 // bytes of the line that is sent
	wordsWait  = 64  // ends whose lines are read, or wait for the loop
)

// telling is a line that says why a program ended, in the order of what is looked for: an error of
// the program, then of a device or of communication, then anything that sounds like one.
var telling = []*regexp.Regexp{
	regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*(Error|Exception|Interrupt|Exit)\b`),
	regexp.MustCompile(`CUDA error|Xid|ECC|out of memory|NCCL WARN|NCCL error|Segmentation fault|Aborted`),
	regexp.MustCompile(`(?i)\b(error|fatal|panic|failed|assert)`),
}

// rankPrefix is what PyTorch puts before each line of the traceback that ends a rank, once for each
// time that groups were made.
var rankPrefix = regexp.MustCompile(`^(?:\[rank\d+\]: ?)+`)

// lastWords is the telling line of what an ended process has printed.
type lastWords struct {
	path  string
	state *falconv1.RankState // its end, as it was sent
	line  string
}

// readWords reads what a process printed last, beside the loop: a file system may not answer. The
// loop finds the line in words.
func (q *questions) readWords(p *process, st *falconv1.RankState) {
	if !q.logs.Enabled || q.proc == "" {
		return
	}
	q.takeFound()
	end, ok := proto.Clone(st).(*falconv1.RankState) // the other belongs to the stream
	if !ok {
		return
	}
	of := slices.DeleteFunc(q.said.Of(int(p.rank)), func(k peek.Known) bool {
		return k.PID != p.header.PID
	})
	if len(of) == 0 {
		return
	}
	select {
	case q.reading <- struct{}{}:
	default:
		return // as many files do not answer, or ended at once: nothing is lost but the line
	}
	path := p.path
	go func() {
		line := wordsOf(end, peek.Tails(q.proc, of, q.logs.Files, wordsLines))
		if line != "" {
			q.words <- lastWords{path, end, line}
		}
		<-q.reading
	}()
}

// wordsOf is what an ended process has printed of why. One that others have killed prints
// nothing of that: an error among its lines is of before. Of another signal an error alone
// tells, and no last line.
func wordsOf(end *falconv1.RankState, parts []*falconv1.PeekPart) string {
	signal := unix.Signal(convert.EndingOf(end).Signal)
	if slices.Contains(sentByOthers, signal) {
		return ""
	}
	line, tells := tellingLine(parts)
	if signal != 0 && !tells {
		return ""
	}
	return line
}

// sentByOthers are signals that a process does not end itself by.
var sentByOthers = []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT}

// tellingLine returns the line that says best why a program ended, of the newest error, else the last one;
// tells reports whether it is of an error.
func tellingLine(parts []*falconv1.PeekPart) (line string, tells bool) {
	var lines []string
	for _, source := range []string{"stdout", "file", "stderr"} { // stderr last
		for _, p := range parts {
			if p.GetSource() == source {
				for _, l := range p.GetLines() {
					lines = append(lines, rankPrefix.ReplaceAllString(l, ""))
				}
			}
		}
	}
	lines = slices.DeleteFunc(lines, func(l string) bool {
		return l == "" || strings.HasPrefix(l, `{"`) // a record for programs, as the adapter writes
	})
	for _, pattern := range telling {
		for _, l := range slices.Backward(lines) {
			if pattern.MatchString(l) {
				return l[:min(len(l), wordsMost)], true
			}
		}
	}
	if len(lines) == 0 {
		return "", false
	}
	last := lines[len(lines)-1]
	return last[:min(len(last), wordsMost)], false
}

// takeWords lists the ends of which a line was read, with it.
func (q *questions) takeWords(processes processSet) (ends []*falconv1.RankState) {
	for {
		select {
		case w := <-q.words:
			if p := processes.processAt(w.path); p != nil && p.dead {
				p.said = w.line
			}
			w.state.Said = w.line
			ends = append(ends, w.state)
		default:
			return ends
		}
	}
}
