package cluster

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// story is a schedule with everything that a run needs besides.
type story struct {
	seed       uint64
	iterations int64 // the job's length, 0 = it does not end
	exitInfo   bool
	alone      bool // no spares, and nobody brings one
	hosted     bool // the framework neither parks nor rejoins
	reuse      bool // of process ids
	injections []injection
	judged     bool // what is said of the job, too
}

// setup is the change that the story makes to what its seed draws.
func (s story) setup(to *setup) {
	if s.iterations > 0 {
		to.iterations = s.iterations
	}
	to.exitInfo = s.exitInfo
	to.hosted = s.hosted
	to.reuse = s.reuse
	if to.alone = s.alone; s.alone {
		to.spares, to.skews, to.old = 0, to.skews[:to.nodes], to.old[:to.nodes]
	}
}

// word is what a story says by one word alone.
type word struct {
	word string
	is   *bool
}

func (s *story) words() []word {
	return []word{{"alone", &s.alone}, {"hosted", &s.hosted}, {"reuse", &s.reuse}}
}

func (s story) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\niterations %d\nexit-info %t\n", s.seed, s.iterations, s.exitInfo)
	for _, x := range s.words() {
		if *x.is {
			fmt.Fprintln(&b, x.word)
		}
	}
	for _, d := range s.injections {
		fmt.Fprintf(&b, "at %v %s node %d rank %d for %v %t\n",
			d.at, d.kind, d.node, d.rank, d.last, d.flag)
	}
	return b.String()
}

// readStory reads what String wrote; lines that begin with # are remarks.
func readStory(path string) (story, error) {
	f, err := os.Open(path)
	if err != nil {
		return story{}, err
	}
	defer f.Close()
	var s story
	for in := bufio.NewScanner(f); in.Scan(); {
		line := in.Text()
		var d injection
		var at, last string
		var err error
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "#", "":
		case "seed":
			_, err = fmt.Sscan(rest, &s.seed)
		case "iterations":
			_, err = fmt.Sscan(rest, &s.iterations)
		case "exit-info":
			_, err = fmt.Sscan(rest, &s.exitInfo)
		case "alone":
			s.alone = true
		case "hosted":
			s.hosted = true
		case "reuse":
			s.reuse = true
		default:
			if _, err = fmt.Sscanf(line, "at %s %s node %d rank %d for %s %t",
				&at, &d.kind, &d.node, &d.rank, &last, &d.flag); err == nil {
				if d.at, err = time.ParseDuration(at); err == nil {
					d.last, err = time.ParseDuration(last)
				}
			}
			s.injections = append(s.injections, d)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %q: %w", path, line, err)
		}
	}
	return s, nil
}

// TestFound plays the schedules that have found something, each shrunk.
func TestFound(t *testing.T) {
	files, _ := filepath.Glob(*stories)
	if len(files) == 0 {
		t.Fatalf("no stories in %s", *stories)
	}
	for i, path := range files {
		if testing.Short() && i%storiesShort != 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s, err := readStory(path)
			if err != nil {
				t.Fatal(err)
			}
			c := play(t, s)
			if *frames {
				tell(t, c, linesKept)
			}
			if len(c.bad) > 0 {
				t.Errorf("%v", c.bad)
				tell(t, c, *linesShown)
			}
		})
	}
}
