package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// deathLine is a line of the script's own log: what one process did, when.
type deathLine struct {
	Pid        int     `json:"pid"`
	Rank       int     `json:"rank"`
	Ns         int64   `json:"ns"`
	Started    bool    `json:"started"`
	Generation int     `json:"generation"` // of its launch; 0 = by hand, or by torchrun
	Joins      bool    `json:"joins"`
	Resumes    bool    `json:"resumes"`
	Attempt    int     `json:"attempt"` // of torchrun
	Begun      *int    `json:"begun"`
	Updated    *int    `json:"updated"`
	Saved      *int    `json:"saved"`
	Loaded     *int    `json:"loaded"`
	Reached    string  `json:"reached"`
	Peers      []int   `json:"peers"`
	Numbers    []int   `json:"numbers"`
	Done       bool    `json:"done"`
	Sums       []int64 `json:"sums"`
}

// trains reports whether the line is of an iteration, or of a checkpoint.
func (l deathLine) trains() bool {
	return l.Begun != nil || l.Updated != nil || l.Saved != nil
}

// readDeathLines reads the logs of all processes in the order of time.
func readDeathLines(dir string) []deathLine {
	var out []deathLine
	files, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is well-formed
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			var l deathLine
			if json.Unmarshal(s.Bytes(), &l) == nil { // the last one of a process that died may be cut
				out = append(out, l)
			}
		}
		_ = f.Close()
	}
	slices.SortStableFunc(out, func(a, b deathLine) int {
		return cmp.Compare(a.Ns, b.Ns)
	})
	return out
}

// deathSeen is what a judge is given: the script's logs, /proc, the folder of checkpoints, and how often
// the engine asked a person.
type deathSeen struct {
	lines   []deathLine
	alive   []int // processes of the job at the play's end, a while after it was done or a person was asked
	stopNs  int64 // when everything that should have ended was seen to; 0 = never
	asks    int
	ended   bool             // every rank has come to the last iteration
	parts   map[string][]int // of each checkpoint that counts: who has written it, by rank
	listing string           // of the engine's recoveries, for a reader
}

// judgeDeath says what of a play is wrong. It asks the engine nothing but how often a person was asked.
func judgeDeath(p deathPlay, s deathSeen) []string {
	bad := slices.Concat(
		judgeAlone(s),
		judgeSteps(s),
		judgeSuccession(s),
		judgeCheckpoints(s),
	)
	if s.asks > 1 {
		bad = append(bad, fmt.Sprintf("a person is asked %d times", s.asks))
	}
	want := p.row.wants()
	if want == asked {
		return append(bad, judgeAsked(p, s)...)
	}
	if !s.ended {
		return append(append(bad, "the job did not come to its last iteration"), judgeStrays(s)...)
	}
	if s.asks > 0 {
		bad = append(bad, "a person is asked")
	}
	bad = append(bad, judgeLedger(p, s)...)
	return slices.Concat(bad, judgePids(p, s, want), judgeStrays(s))
}

// judgeStrays: every process that lives is one of those that train.
func judgeStrays(s deathSeen) []string {
	var job []int
	for _, l := range s.lines {
		if l.trains() {
			job = l.Peers
		}
	}
	var bad []string
	for _, pid := range s.alive {
		if !slices.Contains(job, pid) {
			bad = append(bad, fmt.Sprintf("process %d lives on outside of the job", pid))
		}
	}
	return bad
}

// judgeAlone: whoever trains or saves has all others beside it.
func judgeAlone(s deathSeen) []string {
	var bad []string
	for _, l := range s.lines {
		if !l.trains() {
			continue
		}
		whole := len(l.Peers) == deathRanks &&
			!slices.Contains(l.Peers, 0) &&
			l.Peers[l.Rank] == l.Pid
		if !whole {
			bad = append(bad, fmt.Sprintf("process %d, rank %d, trains outside of the job: beside it are %v",
				l.Pid, l.Rank, l.Peers))
		}
	}
	return slices.Compact(bad)
}

// judgeSteps: those who train together run the same iteration.
func judgeSteps(s deathSeen) []string {
	var bad []string
	newest := map[int]deathLine{} // the last that each process began
	for _, l := range s.lines {
		if l.Begun == nil {
			continue
		}
		newest[l.Pid] = l
		for _, pid := range l.Peers {
			o, begun := newest[pid]
			if begun && slices.Equal(o.Peers, l.Peers) && *l.Begun-*o.Begun > 1 {
				bad = append(bad, fmt.Sprintf("rank %d begins iteration %d while rank %d is in %d",
					l.Rank, *l.Begun, o.Rank, *o.Begun))
			}
		}
	}
	return slices.Compact(bad)
}

// judgeSuccession: once others train in the job, nobody does with those of before.
func judgeSuccession(s deathSeen) []string {
	var bad []string
	var past [][]int
	var now []int
	for _, l := range s.lines {
		switch {
		case !l.trains() || slices.Equal(l.Peers, now):
		case slices.ContainsFunc(past, func(p []int) bool {
			return slices.Equal(p, l.Peers)
		}):
			bad = append(bad, fmt.Sprintf("process %d, rank %d, still trains with %v while %v train",
				l.Pid, l.Rank, l.Peers, now))
		default:
			past = append(past, now)
			now = l.Peers
		}
	}
	return slices.Compact(bad)
}

// judgeCheckpoints: what counts as a checkpoint was written by every rank of the job.
func judgeCheckpoints(s deathSeen) []string {
	var bad []string
	for name, ranks := range s.parts {
		if len(ranks) != deathRanks {
			bad = append(bad, fmt.Sprintf("%s counts, and was written by ranks %v alone", name, ranks))
		}
	}
	return bad
}

// judgeAsked: nothing is started after the end, nobody trains on, and a person is asked.
func judgeAsked(p deathPlay, s deathSeen) []string {
	var bad []string
	if s.asks != 1 && !p.row.before { // Falcon does not know of a job before its first communicator
		bad = append(bad, fmt.Sprintf("a person is asked %d times, want once", s.asks))
	}
	var reached int64
	for _, l := range s.lines {
		switch {
		case l.Reached != "" && reached == 0:
			reached = l.Ns
		case reached > 0 && l.Started && l.Generation > 0:
			bad = append(bad, fmt.Sprintf("rank %d is started again as process %d", l.Rank, l.Pid))
		case s.stopNs > 0 && l.Ns > s.stopNs && l.trains():
			bad = append(bad, fmt.Sprintf("process %d, rank %d, trains on", l.Pid, l.Rank))
		}
	}
	if reached == 0 {
		bad = append(bad, "nothing ended")
	}
	if s.ended {
		bad = append(bad, "the job came to its last iteration")
	}
	// Without an adapter, who waits in a call ends a minute later, by PyTorch's watchdog.
	waits := p.row.adapter == "none" && p.row.deathKind.name == "SIGINT to all"
	if len(s.alive) > 0 && !p.row.before && !waits {
		bad = append(bad, fmt.Sprintf("processes %v are alive", s.alive))
	}
	return bad
}

// lastAttempts are, for each iteration, the lines of those who began it in the attempt that counts.
func lastAttempts(s deathSeen) map[int][]deathLine {
	out := map[int][]deathLine{}
	for _, l := range s.lines {
		if l.Begun == nil {
			continue
		}
		now := out[*l.Begun]
		if len(now) > 0 && !slices.Equal(now[0].Peers, l.Peers) {
			out[*l.Begun] = nil
		}
		out[*l.Begun] = append(out[*l.Begun], l)
	}
	return out
}

// judgeLedger: in the history that counts every iteration was run by every rank, and each micro-batch
// counts once, by what the ranks wrote before they ran them and by the sums that they hold in the end.
func judgeLedger(p deathPlay, s deathSeen) []string {
	var bad []string
	each := 1 // ranks that run the same micro-batch
	if p.row.adapter == "pipeline" {
		each = 2
	}
	perIteration := deathMicro * deathRanks / each
	attempts := lastAttempts(s)
	updated := map[int]bool{}
	for _, l := range s.lines {
		if l.Updated != nil &&
			len(attempts[*l.Updated]) > 0 &&
			slices.Equal(l.Peers, attempts[*l.Updated][0].Peers) {
			updated[*l.Updated] = true
		}
	}
	for i := range p.iterations() {
		count := map[int]int{}
		ranks := map[int]bool{}
		for _, l := range attempts[i] {
			if ranks[l.Rank] { // its second attempt beside the same processes
				continue
			}
			ranks[l.Rank] = true
			for _, k := range l.Numbers {
				count[k]++
			}
		}
		exact := len(ranks) == deathRanks && len(count) == perIteration && updated[i]
		for k := range perIteration {
			exact = exact && count[i*perIteration+k] == each
		}
		if !exact {
			bad = append(bad, fmt.Sprintf("iteration %d: begun by %d ranks, updated: %v, micro-batches %v",
				i, len(ranks), updated[i], count))
		}
	}
	var sums [2]int64
	for k := range int64(p.iterations() * perIteration) {
		sums[0] += int64(each) * k
		sums[1] += int64(each) * k * k
	}
	for _, l := range s.lines {
		if l.Done && !slices.Equal(l.Sums, sums[:]) {
			bad = append(bad, fmt.Sprintf("rank %d: the ledger has %v, want %v", l.Rank, l.Sums, sums))
		}
	}
	return bad
}

// judgePids: survivors are the processes that they were, or all are others, as the row says; no more
// iterations run again than it allows.
func judgePids(p deathPlay, s deathSeen, want deathOutcome) []string {
	var first, last []int
	for _, l := range s.lines {
		if l.trains() {
			if first == nil {
				first = l.Peers
			}
			last = l.Peers
		}
	}
	if len(first) != deathRanks || len(last) != deathRanks {
		return []string{"nobody trained"}
	}
	var bad []string
	for r := range deathRanks {
		kept := first[r] == last[r]
		victim := slices.Contains(p.victims(), r)
		switch {
		case want == restarted && kept:
			bad = append(bad, fmt.Sprintf("rank %d is still process %d after a whole restart", r, first[r]))
		case want != restarted && !victim && !kept:
			bad = append(bad, fmt.Sprintf("survivor %d is process %d, and was %d",
				r, last[r], first[r]))
		}
	}
	most := map[deathOutcome]int{
		goesOn:      0,
		inPlace:     1,
		fromStorage: deathEvery + 1,
		restarted:   deathEvery + 1,
	}[want]
	if n := ranAgain(s); n > most {
		bad = append(bad, fmt.Sprintf("%d iterations ran again, at most %d may", n, most))
	}
	return bad
}

// ranAgain is how many iterations some rank began more than once.
func ranAgain(s deathSeen) int {
	count := map[[2]int]int{}
	for _, l := range s.lines {
		if l.Begun != nil {
			count[[2]int{l.Rank, *l.Begun}]++
		}
	}
	again := map[int]bool{}
	for key, n := range count {
		if n > 1 {
			again[key[1]] = true
		}
	}
	return len(again)
}

// goodDeath is what a play of a DDP job looks like whose rank 1 died in iteration 9 and was replaced.
func goodDeath() (deathPlay, deathSeen) {
	p := deathPlay{
		row:   deathRow{deathJob{"ddp", "outside"}, kindsOfEnd[0]},
		death: scriptDeath{Ranks: []int{1}, Iteration: 9},
	}
	s := deathSeen{
		ended: true,
		parts: map[string][]int{"checkpoint-4": {0, 1, 2, 3}},
	}
	before := []int{10, 11, 12, 13}
	after := []int{10, 21, 12, 13}
	ns := int64(0)
	iteration := func(i int, peers []int, whole bool) {
		for r := range deathRanks {
			ns++
			var numbers []int
			for k := range deathMicro {
				numbers = append(numbers, (i*deathRanks+r)*deathMicro+k)
			}
			s.lines = append(s.lines, deathLine{
				Pid:     peers[r],
				Rank:    r,
				Ns:      ns,
				Begun:   &i,
				Peers:   peers,
				Numbers: numbers,
			})
			if whole {
				s.lines = append(s.lines, deathLine{
					Pid:     peers[r],
					Rank:    r,
					Ns:      ns + 100,
					Updated: &i,
					Peers:   peers,
				})
			}
		}
		ns += 200
	}
	for i := range 9 {
		iteration(i, before, true)
	}
	iteration(9, before, false)
	for i := 9; i < deathIterations; i++ {
		iteration(i, after, true)
	}
	last := int64(deathIterations * deathRanks * deathMicro)
	for r := range deathRanks {
		s.lines = append(s.lines, deathLine{
			Pid:  after[r],
			Rank: r,
			Ns:   ns,
			Done: true,
			Sums: []int64{last * (last - 1) / 2, (last - 1) * last * (2*last - 1) / 6},
		})
	}
	slices.SortStableFunc(s.lines, func(a, b deathLine) int {
		return cmp.Compare(a.Ns, b.Ns)
	})
	return p, s
}

// The judge passes what is right and says what is wrong, one thing at a time.
func TestJudgeDeath(t *testing.T) {
	if p, s := goodDeath(); judgeDeath(p, s) != nil {
		t.Errorf("a right play: %v", judgeDeath(p, s))
	}
	last := deathIterations - 1
	for want, spoil := range map[string]func(*deathPlay, *deathSeen){
		"trains outside of the job": func(_ *deathPlay, s *deathSeen) {
			s.lines = append(s.lines, deathLine{
				Pid:     77,
				Rank:    2,
				Updated: &last,
				Peers:   []int{0, 0, 77, 0},
			})
		},
		"still trains with [10 11 12 13]": func(_ *deathPlay, s *deathSeen) {
			s.lines = append(s.lines, deathLine{
				Pid:   11,
				Rank:  1,
				Saved: &last,
				Peers: []int{10, 11, 12, 13},
			})
		},
		"rank 3 begins iteration 99 while rank": func(_ *deathPlay, s *deathSeen) {
			far := 99
			s.lines = append(s.lines, deathLine{
				Pid:   13,
				Rank:  3,
				Begun: &far,
				Peers: []int{10, 21, 12, 13},
			})
		},
		"was written by ranks [2] alone": func(_ *deathPlay, s *deathSeen) {
			s.parts["checkpoint-8"] = []int{2}
		},
		"a person is asked 2 times": func(_ *deathPlay, s *deathSeen) { s.asks = 2 },
		"a person is asked":         func(_ *deathPlay, s *deathSeen) { s.asks = 1 },
		"did not come to its last":  func(_ *deathPlay, s *deathSeen) { s.ended = false },
		"process 99 lives on outside": func(_ *deathPlay, s *deathSeen) {
			s.alive = []int{10, 99}
		},
		"survivor 1 is process 21": func(p *deathPlay, _ *deathSeen) {
			p.death.Ranks = []int{2}
		},
		"still process 10 after a whole": func(p *deathPlay, _ *deathSeen) { p.row.adapter = "none" },
		"2 iterations ran again": func(_ *deathPlay, s *deathSeen) {
			s.lines = append(s.lines, beginning(s, last))
		},
		"the ledger has [1 2]": func(_ *deathPlay, s *deathSeen) {
			s.lines[len(s.lines)-1].Sums = []int64{1, 2}
		},
		"iteration 29: begun by 3 ranks": func(_ *deathPlay, s *deathSeen) {
			s.lines = slices.DeleteFunc(s.lines, isBeginning(last, 3))
		},
		"iteration 29: begun by 4 ranks": func(_ *deathPlay, s *deathSeen) {
			s.lines[slices.IndexFunc(s.lines, isBeginning(last, 3))].Numbers = []int{1}
		},
		"is started again as process 99": stopped(func(s *deathSeen) {
			s.lines[1] = deathLine{Pid: 99, Started: true, Generation: 1}
		}),
		"trains on": stopped(func(s *deathSeen) {
			s.lines[1] = beginning(s, 0)
		}),
		"processes [10] are alive":        stopped(func(s *deathSeen) { s.alive = []int{10} }),
		"a person is asked 0 times, want": stopped(func(s *deathSeen) { s.asks = 0 }),
		"nothing ended":                   stopped(func(s *deathSeen) { s.lines = nil }),
	} {
		p, s := goodDeath()
		spoil(&p, &s)
		if got := strings.Join(judgeDeath(p, s), "; "); !strings.Contains(got, want) {
			t.Errorf("want %q, the judge says %q", want, got)
		}
	}
}

// stopped makes the play one of a job that was stopped, which is right but for what spoil does.
func stopped(spoil func(*deathSeen)) func(*deathPlay, *deathSeen) {
	return func(p *deathPlay, s *deathSeen) {
		p.row.deathKind.name = "SIGTERM to all"
		*s = deathSeen{
			asks:   1,
			stopNs: 1,
			lines:  []deathLine{{Ns: 1, Reached: "forward"}, {Ns: 2}},
		}
		if bad := judgeDeath(*p, *s); bad != nil {
			panic(fmt.Sprint("a right stop: ", bad))
		}
		spoil(s)
	}
}

// beginning is another line of rank 0 that begins an iteration, at the end of time.
func beginning(s *deathSeen, i int) deathLine {
	peers := []int{10, 21, 12, 13}
	if n := len(s.lines); n > 0 {
		return deathLine{
			Pid:   10,
			Ns:    s.lines[n-1].Ns + 1,
			Begun: &i,
			Peers: peers,
		}
	}
	return deathLine{Pid: 10, Begun: &i, Peers: peers}
}

func isBeginning(i, rank int) func(deathLine) bool {
	return func(l deathLine) bool {
		return l.Begun != nil && *l.Begun == i && l.Rank == rank
	}
}
