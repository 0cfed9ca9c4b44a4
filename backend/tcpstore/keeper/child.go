package keeper

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The words on the socket pair, one line each. The keeper sends wordFence with a
// generation; the store sends wordReady once, and one of the others with the
// generation for each fence.
const (
	wordReady   = "ready"
	wordFence   = "fence"
	wordFenced  = "fenced"
	wordRefused = "refused"
)

// lineMost bounds a line.
const lineMost = 1 << 10

// message is one line.
type message struct {
	word       string
	generation uint64
	why        string // of a refusal
}

func (m message) String() string {
	if m.word == wordReady {
		return m.word + "\n"
	}
	return strings.TrimRight(
		fmt.Sprintf("%s %d %s", m.word, m.generation, strings.ReplaceAll(m.why, "\n", " ")),
		" ",
	) + "\n"
}

// parse reads one line; ok = it is one that is known.
func parse(line string) (m message, ok bool) {
	word, rest, _ := strings.Cut(line, " ")
	if word == wordReady {
		return message{word: word}, rest == ""
	}
	number, why, _ := strings.Cut(rest, " ")
	generation, err := strconv.ParseUint(number, 10, 64)
	known := word == wordFence || word == wordFenced || word == wordRefused
	return message{word, generation, why}, known && err == nil
}

// child is one store's process, as the keeper sees it.
type child struct {
	cmd     *exec.Cmd
	control *os.File
	one     sync.Mutex    // one fence at a time
	answers chan message  // to fences; dropped when no one waits
	heard   chan struct{} // closed when nothing more is read
	ended   chan struct{} // closed when the process is gone
}

func newChild(control *os.File) *child {
	return &child{
		control: control,
		answers: make(chan message, 1),
		heard:   make(chan struct{}),
		ended:   make(chan struct{}),
	}
}

func (c *child) kill() {
	if c.cmd.Process != nil {
		_ = c.cmd.Process.Kill()
	}
}

// end asks the process to end, and kills it where it does not.
func (c *child) end() {
	_ = c.control.Close()
	select {
	case <-c.ended:
	case <-time.After(endWait):
		c.kill()
	}
}

// listen reads what the store says until its end of the pair is closed.
func (c *child) listen(ready func()) {
	defer close(c.heard)
	in := bufio.NewScanner(c.control)
	in.Buffer(nil, lineMost)
	for in.Scan() {
		switch m, ok := parse(in.Text()); {
		case !ok:
			c.kill() // no program of ours
			return
		case m.word == wordReady:
			ready()
		default:
			c.answered(m)
		}
	}
}

// answered hands an answer to the fence that waits; one that waits no longer
// leaves it to be thrown away by the next.
func (c *child) answered(m message) {
	select {
	case c.answers <- m:
	default:
	}
}

// fence sends a generation and waits for the answer. A store that gives none is
// killed: nothing that it holds is served then.
func (c *child) fence(generation uint64, log *slog.Logger) error {
	c.one.Lock()
	defer c.one.Unlock()
	select {
	case <-c.answers:
	default:
	}
	if _, err := io.WriteString(
		c.control,
		message{word: wordFence, generation: generation}.String(),
	); err != nil {
		return c.gone()
	}
	for late := time.After(fenceWait); ; {
		select {
		case m := <-c.answers:
			if m.generation != generation {
				continue
			}
			if m.word == wordRefused {
				return fmt.Errorf("keeper: the store refuses generation %d: %s", generation, m.why)
			}
			return nil
		case <-c.ended:
			return nil
		case <-late:
			log.Error(
				"the rendezvous store did not answer to a fence, and is killed",
				"generation",
				generation,
				"waited",
				fenceWait,
			)
			return c.gone()
		}
	}
}

// gone kills the process and reports whether it is gone.
func (c *child) gone() error {
	c.kill()
	select {
	case <-c.ended:
		return nil
	case <-time.After(endWait):
		return fmt.Errorf("%w: it was killed %s ago", ErrStuck, endWait)
	}
}
