package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/agent/lab/hollow"
)

var (
	torchDeaths = flag.Int("torch-deaths", 0,
		"plays of a PyTorch job in which something ends, of every kind, for each adapter")
	torchDeathFirst = flag.Int("torch-deaths-first", 1, "number of the first such play")
	torchDeathKept  = flag.String("torch-deaths-kept", "",
		"file with a line for each play so far, by which hours of plays may be of several days and machines")
	torchDeathFor = flag.Duration("torch-deaths-for", 12*time.Hour, "no play begins after this time")
)

// How long a play may take, and how long nothing may follow where nothing is to follow.
const (
	deathWithin = 4 * time.Minute
	// also that a recovery waits for a person: policy decides within a few seconds
	deathCalm   = 10 * time.Second
	deathUnseen = 30 * time.Second // the same where Falcon may not know of the job yet
	deathLeave  = 2 * time.Second  // from the last iteration, for what must end with it
)

// deathResult is what is kept of a play.
type deathResult struct {
	Number  int      `json:"number"`
	Play    string   `json:"play"`
	Adapter string   `json:"adapter"`
	Entry   string   `json:"entry"`
	Row     string   `json:"row"`
	Wants   string   `json:"wants"`
	Again   int      `json:"ran_again"`
	Asks    int      `json:"asks"`
	Seconds float64  `json:"seconds"`
	Build   string   `json:"build"`
	Said    string   `json:"recoveries,omitempty"` // by the engine, where a play is judged wrong
	Bad     []string `json:"bad"`
}

// Whatever ends in a job of whatever adapter, in whatever phase: the job becomes what its row says, nobody
// trains or saves outside of it, and each micro-batch counts once.
func TestTorchDeaths(t *testing.T) {
	if testing.Short() || *torchDeaths == 0 {
		t.Skip("give -torch-deaths")
	}
	needOperators(t)
	command, dir, began := trainTorch(t, "deaths.py"), reportDir(t), time.Now()
	all := readDeaths(t, *torchDeathKept)
	for _, p := range deathPlays(*torchDeathFirst, *torchDeaths) {
		if slices.ContainsFunc(all, func(r deathResult) bool {
			return r.Number == p.number
		}) {
			continue
		}
		if time.Since(began) > *torchDeathFor {
			t.Logf("%d plays so far: the time is over", len(all))
			break
		}
		t.Run(fmt.Sprintf("%04d", p.number), func(t *testing.T) {
			r := playDeath(
				t,
				command,
				p,
				filepath.Join(dir, fmt.Sprintf("death-%04d", p.number)),
			)
			keepResult(t, *torchDeathKept, r)
			all = append(all, r)
			t.Logf("%s: wants %q; %d ran again, %.0f s", p, r.Wants, r.Again, r.Seconds)
			if len(r.Bad) > 0 {
				t.Errorf("%s: %s\n%s", p, strings.Join(r.Bad, "; "), r.Said)
			}
		})
	}
	text := deathsTable(all)
	writePage(t, "torch-deaths", text)
	t.Log(text)
}

// readDeaths are the plays of a file that are of the same kind still: a row may have another judge since.
func readDeaths(t *testing.T, path string) (all []deathResult) {
	t.Helper()
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var r deathResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v in %q", path, err, line)
		}
		if p := deathPlays(r.Number, 1)[0]; p.String() == r.Play && string(p.row.wants()) == r.Wants {
			all = append(all, r)
		}
	}
	return all
}

// keepResult appends a play to the file.
func keepResult(t *testing.T, path string, r deathResult) {
	t.Helper()
	if path == "" {
		return
	}
	if len(r.Bad) == 0 {
		r.Said = ""
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}
}

// Plays of a file are not played again, but where what is played under their number is another play.
func TestDeathsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deaths.jsonl")
	if got := readDeaths(t, path); got != nil {
		t.Errorf("%+v of no file", got)
	}
	var want []deathResult
	for _, p := range deathPlays(7, 3) {
		r := deathResult{
			Number: p.number,
			Play:   p.String(),
			Wants:  string(p.row.wants()),
		}
		keepResult(t, path, r)
		want = append(want, r)
	}
	other := want[0]
	other.Number = 11
	keepResult(t, path, other)
	if got := readDeaths(t, path); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// needOperators is needHeaders on the stand-ins that a lab takes, which are built once a machine.
func needOperators(t *testing.T) {
	t.Helper()
	torch, err := findPyTorch("", interpreterWithTorch(t))
	if err != nil {
		t.Skip(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	lib, err := filepath.Abs("../../bin/lib")
	if err != nil {
		t.Fatal(err)
	}
	folder, _, err := hollow.Build(
		torch,
		lib,
		filepath.Join(cache, "falcon", "hollow"),
	)
	if err != nil {
		t.Skip(err)
	}
	needHeaders(t, "LD_LIBRARY_PATH="+folder)
}

// playDeath plays once, and judges. The logs of a play that is judged wrong are kept in a folder.
func playDeath(t *testing.T, command string, p deathPlay, kept string) deathResult {
	t.Helper()
	began := time.Now()
	d := &deathStage{t: t, play: p, folder: t.TempDir()}
	d.setEnvironment()
	shape := lab.Shape{TP: 1, DP: deathRanks, PP: 1}
	if p.row.adapter == "pipeline" {
		shape = lab.Shape{TP: 1, DP: deathRanks / 2, PP: 2}
	}
	sc := recoverScenario("deaths", shape, 1)
	sc.Nodes = deathRanks / deathPerNode
	sc.Iterations = p.iterations()
	sc.Policy = map[string]any{
		"mode":     "auto",
		"cap":      "S1",
		"owner":    "lab",
		"recovery": map[string]any{"per_hour": 1000, "in_place": 1000},
	}
	more := []string{"--train", command}
	if p.row.adapter == "none" {
		more = append(more, "--adapter", "off")
	}
	d.lab = openLab(t, sc, "", more...)
	seen := d.run()
	if bad := judgeDeath(p, seen); len(bad) > 0 {
		keepDeath(t, kept, d)
	}
	d.end()
	r := deathResult{
		Number:  p.number,
		Play:    p.String(),
		Adapter: p.row.adapter,
		Entry:   p.row.entry,
		Row:     p.row.name(),
		Wants:   string(p.row.wants()),
		Again:   ranAgain(seen),
		Asks:    seen.asks,
		Build:   labBuild(t),
		Said:    seen.listing,
		Bad:     judgeDeath(p, seen),
		Seconds: time.Since(began).Seconds(),
	}
	if len(r.Bad) > 0 {
		writeFile(t, filepath.Join(kept, "lab.txt"), d.lab.out.String())
	}
	return r
}

// keepDeath keeps what the script and the lab's processes have written.
func keepDeath(t *testing.T, kept string, d *deathStage) {
	t.Helper()
	_ = os.RemoveAll(kept)
	for _, from := range []string{d.folder, filepath.Join(d.lab.dir, "logs")} {
		if err := os.CopyFS(filepath.Join(kept, filepath.Base(from)), os.DirFS(from)); err != nil {
			t.Log(err)
		}
	}
}

// labBuild is what the programs that are played say of themselves.
func labBuild(t *testing.T) string {
	out, _ := exec.Command(binFalcon(t), "version").Output() // none is as good
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// deathStage is a lab in which one play runs.
type deathStage struct {
	t       *testing.T
	play    deathPlay
	folder  string
	lab     *liveLab
	listing string
	looked  time.Time // when the engine's list was asked for last
	asked   time.Time // since when a person is asked
}

func (d *deathStage) setEnvironment() {
	announced, err := json.Marshal(d.play.death)
	if err != nil {
		d.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"FOLDER":        d.folder,
		"ADAPTER":       d.play.row.adapter,
		"ENTRY":         d.play.row.entry,
		"DEATH":         string(announced),
		"TORCHRUN":      torchrunRestarts[d.play.row.deathKind.name],
		"ITERATIONS":    strconv.Itoa(d.play.iterations()),
		"EVERY":         strconv.Itoa(deathEvery),
		"TORCHRUN_PORT": "0",
	} {
		d.t.Setenv(name, value)
	}
	if torchrunRestarts[d.play.row.deathKind.name] == "" {
		return
	}
	address, err := freeAddress()
	if err != nil {
		d.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	d.t.Setenv("TORCHRUN_PORT", port)
}

// run deals the death, waits for what follows, and looks.
func (d *deathStage) run() deathSeen {
	limit := time.Now().Add(deathWithin)
	dealt := d.play.row.by != "wait"
	var s deathSeen
	var reached, stopped time.Time
	for now := time.Now(); now.Before(limit); now = time.Now() {
		time.Sleep(20 * time.Millisecond)
		files, _ := filepath.Glob(filepath.Join(d.folder, "reached-*"))
		if len(files) > 0 && reached.IsZero() {
			reached = now
		}
		if !dealt && !reached.IsZero() {
			d.deal()
			dealt = true
		}
		if s.ended = d.ended(); s.ended || d.labEnded() {
			break
		}
		if stopped.IsZero() && d.nothingFollows(now, reached) {
			stopped = now
			s.stopNs = monotonicNs()
		}
		if !stopped.IsZero() && now.Sub(stopped) > deathCalm { // in which somebody would train on
			break
		}
	}
	if s.ended {
		time.Sleep(deathLeave)
	}
	s.asks, s.listing = d.countAsks(), d.listing
	s.lines = readDeathLines(d.folder)
	s.alive = processesWith("FOLDER=" + d.folder)
	s.parts = checkpointParts(d.folder)
	return s
}

// nothingFollows reports whether a person has been asked for a while, or, where Falcon may not know of
// the job yet, nothing has come of it.
func (d *deathStage) nothingFollows(now, reached time.Time) bool {
	if d.play.row.before && !reached.IsZero() && now.Sub(reached) > deathUnseen {
		return true
	}
	if now.Sub(d.looked) < time.Second {
		return false
	}
	d.looked = now
	switch {
	case d.countAsks() == 0:
		d.asked = time.Time{}
	case d.asked.IsZero():
		d.asked = now
	}
	return !d.asked.IsZero() && now.Sub(d.asked) > deathCalm
}

// ended reports whether all ranks have come to the last iteration.
func (d *deathStage) ended() bool {
	done, _ := filepath.Glob(filepath.Join(d.folder, "done-*")) // the pattern is well-formed
	return len(done) == deathRanks
}

func (d *deathStage) labEnded() bool {
	select {
	case err := <-d.lab.ended:
		d.lab.ended <- err // for who waits for it
		return true
	default:
		return false
	}
}

// deal does to the job what its row says, while a rank waits at its point.
func (d *deathStage) deal() {
	node := fmt.Sprintf("n%d", d.play.death.Ranks[0]/deathPerNode)
	var err error
	switch d.play.row.deathKind.name {
	case "kill of a node":
		_, err = lab.Ask(d.lab.dir, lab.Request{Op: "kill", Target: "node " + node})
	case "kill of an agent":
		_, err = lab.Ask(d.lab.dir, lab.Request{
			Op:     "kill-agent",
			Target: node,
			For:    2 * time.Second,
		})
	case "SIGTERM to all":
		d.signalAll(unix.SIGTERM)
	case "SIGINT to all":
		d.signalAll(unix.SIGINT)
	}
	if err != nil {
		d.t.Error(err)
	}
	writeFile(d.t, filepath.Join(d.folder, "go"), "")
}

func (d *deathStage) signalAll(sig unix.Signal) {
	for _, pid := range processesWith("FOLDER=" + d.folder) {
		_ = unix.Kill(pid, sig) // ended meanwhile is as good
	}
}

// countAsks is how many recoveries wait for a person, or were given up: a person has to act.
func (d *deathStage) countAsks() int {
	out, err := exec.Command(
		binFalcon(d.t),
		"recovery",
		"list",
		"--connect", d.lab.status().Socket,
		"--json",
	).Output()
	var reply struct {
		Recoveries []falcon.Recovery `json:"recoveries"`
	}
	if err != nil || json.Unmarshal(out, &reply) != nil {
		return 0
	}
	asks, text := 0, ""
	for _, r := range reply.Recoveries {
		if r.State == falcon.RecoveryProposed || r.State == falcon.RecoveryFailed {
			asks++
		}
		text += fmt.Sprintf("%s %s %s: %s\n", r.ID, r.State, r.Together, r.Reason)
	}
	d.listing = text
	return asks
}

// end has the job leave, and the lab end.
func (d *deathStage) end() {
	writeFile(d.t, filepath.Join(d.folder, "leave"), "")
	if slices.ContainsFunc(readDeathLines(d.folder), func(l deathLine) bool { return l.Done }) {
		for range 50 { // the job's own end
			if len(processesWith("FOLDER="+d.folder)) == 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	_, _ = lab.Ask(d.lab.dir, lab.Request{Op: "stop"}) // its end may be that of a job that has failed
	select {
	case <-d.lab.ended:
	case <-time.After(30 * time.Second):
		_ = d.lab.cmd.Process.Signal(unix.SIGTERM)
		<-d.lab.ended
	}
}

// processesWith are the living training processes that have a variable in their environment: those that
// write a log.
func processesWith(variable string) []int {
	folder := strings.TrimPrefix(variable, "FOLDER=")
	var out []int
	files, _ := filepath.Glob(filepath.Join(folder, "*.log")) // the pattern is well-formed
	for _, file := range files {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".log"))
		if err != nil {
			continue
		}
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // a zombie's is empty
		if err == nil && slices.Contains(strings.Split(string(environment), "\x00"), variable) {
			out = append(out, pid)
		}
	}
	return out
}

// checkpointParts are the ranks that have written the checkpoints that count.
func checkpointParts(folder string) map[string][]int {
	out := map[string][]int{}
	marks, _ := filepath.Glob(filepath.Join(folder, "checkpoint-*", "complete")) // the pattern is well-formed
	for _, mark := range marks {
		name := filepath.Base(filepath.Dir(mark))
		for r := range deathRanks {
			if _, err := os.Stat(filepath.Join(filepath.Dir(mark), fmt.Sprintf("%d.pt", r))); err == nil {
				out[name] = append(out[name], r)
			}
		}
	}
	return out
}

// monotonicNs is the clock that the script's logs have.
func monotonicNs() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

// deathsTable is the page's part.
func deathsTable(all []deathResult) string {
	type score struct{ played, right int }
	scores := map[string]map[string]*score{}
	builds := map[string]int{} // plays may be of several: a target goes on where it stopped
	right := 0
	for _, r := range all {
		builds[r.Build]++
		job := r.Adapter + ", " + r.Entry
		if scores[r.Row] == nil {
			scores[r.Row] = map[string]*score{}
		}
		if scores[r.Row][job] == nil {
			scores[r.Row][job] = &score{}
		}
		scores[r.Row][job].played++
		if len(r.Bad) == 0 {
			scores[r.Row][job].right++
			right++
		}
	}
	head := []string{"What ends"}
	for _, j := range deathJobs {
		head = append(head, j.adapter+", "+j.entry)
	}
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(scores)) {
		row := []string{name}
		for _, job := range head[1:] {
			cell := ""
			if s := scores[name][job]; s != nil {
				cell = fmt.Sprintf("%d of %d", s.right, s.played)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	var by []string
	for _, build := range slices.Sorted(maps.Keys(builds)) {
		by = append(by, fmt.Sprintf("%d of %s", builds[build], build))
	}
	return fmt.Sprintf(
		"## Deaths of every kind\n\nBy `make torch-deaths TORCH_DEATHS=%d`. %s\n\n%s\n%d of %d plays right; by builds: %s.\n\n%s",
		*torchDeaths, machine(), deathsAbout, right, len(all), strings.Join(by, ", "),
		mdTable(head, rows),
	)
}

const deathsAbout = `Jobs of 4 ranks on two nodes with a spare, with a checkpoint every 4 iterations, outside and inside
of ` + "`falcon_torch.run`" + `; something ends in a random iteration. Right: ` +
	"`ddp`, and `hsdp` and `pipeline`" + ` inside go on
in place from replicas with the survivors' processes, at most one iteration runs again; ` +
	"`fsdp`" + ` inside goes on
in the same processes from storage; the others are restarted whole; the end of an agent changes nothing; SIGTERM and
SIGINT to all, the same error on all and what ends before the first iteration start nothing, and a person is asked once.
In each play nobody trains or saves outside of the job, every checkpoint that counts was written by all ranks, and
the ledger has each micro-batch once.
`
