package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/failslow/falcon/agent/lab"
)

var (
	labVersions = flag.String("lab-versions", "",
		"play this build's programs beside those of this commit, in all pairs and in upgrades")
	labVersionsBin  = flag.String("lab-versions-bin", "", "keep the build of that commit in this folder")
	labVersionsMost = flag.Int("lab-versions-most", 0, "play so many pairs and upgrades at most, 0 = all")
)

// releaseMix is which programs of a lab are of the release before.
type releaseMix struct{ engine, agent, hook, trainer bool }

func (m releaseMix) String() string {
	release := map[bool]string{true: "N-1", false: "N"}
	return fmt.Sprintf("engine and console %s, agents %s, hook %s, adapter %s",
		release[m.engine], release[m.agent], release[m.hook], release[m.trainer])
}

// releaseMixes are all of them, whole releases last.
func releaseMixes() []releaseMix {
	var out []releaseMix
	for i := 1; i < 16; i++ {
		out = append(out, releaseMix{i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0})
	}
	return append(out, releaseMix{})
}

// isBlind reports whether these agents can't read this hook's files.
func (r releases) isBlind(m releaseMix) bool {
	return m.agent && !m.hook && r.formats[0] != r.formats[1]
}

// isUndeclared reports whether this release's engine or agents meet processes that have declared nothing:
// those of the release before said by their questions what they can do.
func (m releaseMix) isUndeclared() bool {
	return (m.hook || m.trainer) && (!m.engine || !m.agent)
}

// releases are two builds: of the commit before, and this one.
type releases struct {
	before, now string // folders as bin
	formats     [2]string
}

// prepareReleases builds the release before where that was not done, or skips the test.
func prepareReleases(t *testing.T) releases {
	t.Helper()
	if *labVersions == "" {
		t.Skip("builds another release: run make version-pairs")
	}
	r := releases{
		now:    filepath.Dir(binFalcon(t)),
		before: filepath.Join(*labVersionsBin, *labVersions, "bin"),
	}
	if *labVersionsBin == "" {
		r.before = filepath.Join(t.TempDir(), "bin")
	}
	r.before, _ = filepath.Abs(r.before)
	if _, err := os.Stat(filepath.Join(r.before, "falcon")); err != nil {
		buildBefore(t, r.before)
	}
	header := "native/include/falcon_shm.h"
	r.formats = [2]string{formatIn(t, "show", *labVersions+":"+header), formatIn(t, "show", "HEAD:"+header)}
	return r
}

// formatIn is the hook's format in what git prints.
func formatIn(t *testing.T, args ...string) string {
	t.Helper()
	text, err := exec.Command("git", args...).Output()
	m := regexp.MustCompile(`#define FALCON_SHM_VERSION (\d+)`).FindSubmatch(text)
	if err != nil || m == nil {
		t.Fatalf("git %s has no version of the hook's file: %v", strings.Join(args, " "), err)
	}
	return string(m[1])
}

// buildBefore builds a commit's programs into bin. The sources lie beside it, then go.
func buildBefore(t *testing.T, bin string) {
	t.Helper()
	source := bin + "-source"
	defer os.RemoveAll(source)
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("git", "cat-file", "-e", *labVersions+"^{commit}").Run(); err != nil {
		t.Skipf("commit %s is not in this clone: fetch it, or name another with -lab-versions", *labVersions)
	}
	script := fmt.Sprintf(
		"git -C ../.. archive %s | tar -x -C %s && cd %s && make -s native BIN=%s && CGO_LDFLAGS=-L%s/lib go build -o %s/ ./cmd/...",
		*labVersions, source, source, bin, bin, bin,
	)
	if out, err := exec.Command("bash", "-c", "set -o pipefail; "+script).CombinedOutput(); err != nil {
		t.Fatalf("the release %s can't be built: %v\n%s", *labVersions, err, out)
	}
}

// folder makes a bin folder of both releases.
func (r releases) folder(t *testing.T, m releaseMix) string {
	t.Helper()
	dir := t.TempDir()
	for name, before := range map[string]bool{
		"falcon":                         m.engine,
		"falcon-agent":                   m.agent,
		"falcon-trainer":                 m.trainer,
		"lib/libfalcon_hook.so":          m.hook,
		"lib/libnccl-profiler-falcon.so": m.hook,
	} {
		r.place(t, dir, name, before)
	}
	stand := filepath.Join(r.of(m.engine), "lib") // the silicon is the lab's
	err := filepath.WalkDir(stand, func(path string, d fs.DirEntry, err error) error {
		to := filepath.Join(dir, "lib", d.Name())
		if _, done := os.Lstat(to); err != nil || d.IsDir() || done == nil {
			return err
		}
		return copyFile(path, to)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (r releases) of(before bool) string {
	if before {
		return r.before
	}
	return r.now
}

// place puts one program in its place, at once: a process that runs keeps the other.
func (r releases) place(t *testing.T, dir, name string, before bool) {
	t.Helper()
	to := filepath.Join(dir, name)
	err := os.MkdirAll(filepath.Dir(to), 0o755)
	if err == nil {
		err = copyFile(filepath.Join(r.of(before), name), to+".new")
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// mixedLab is a lab of programs of two releases.
type mixedLab struct {
	bin, temp, report, recording string
	out                          lockedBuffer
	cmd                          *exec.Cmd
	ended                        chan error
	result                       error // once it is over
	over                         bool
}

const (
	mixedWithin = 4 * time.Minute
	blindFor    = 25 * time.Second // that nothing may come of a death which can't be seen
)

func startMixed(t *testing.T, bin string, sc lab.Scenario, args ...string) *mixedLab {
	t.Helper()
	temp, err := os.MkdirTemp("", "mix") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	l := &mixedLab{
		bin:       bin,
		temp:      temp,
		report:    filepath.Join(temp, "report.json"),
		recording: filepath.Join(temp, "recording"),
		ended:     make(chan error, 1),
	}
	args = append(
		[]string{
			"lab",
			"run",
			"--headless",
			"--report", l.report,
			"--record", l.recording,
			"--scenario", scenarioFile(t, sc),
		},
		args...,
	)
	ctx, cancel := context.WithTimeout(context.Background(), mixedWithin)
	t.Cleanup(cancel)
	l.cmd = exec.CommandContext(ctx, filepath.Join(bin, "falcon"), args...)
	l.cmd.Cancel = func() error {
		return l.cmd.Process.Signal(syscall.SIGTERM)
	}
	l.cmd.WaitDelay = 20 * time.Second
	l.cmd.Stdout, l.cmd.Stderr, l.cmd.Env = &l.out, &l.out, append(os.Environ(), "TMPDIR="+temp)
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		l.ended <- l.cmd.Wait()
		close(l.ended)
	}()
	return l
}

// lockedBuffer is what a program prints while it is read.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// asksAPerson waits until a person is asked about the death, in one sentence and without a fence, and
// ends the lab then; false where the lab ends before.
func (l *mixedLab) asksAPerson() bool {
	for {
		select {
		case l.result = <-l.ended:
			l.over = true
			return false
		case <-time.After(100 * time.Millisecond):
		}
		out := l.out.String()
		if strings.Contains(out, "fenced") {
			return false // judged by its report
		}
		if strings.Contains(out, "waits for a person: ") {
			_ = l.cmd.Process.Signal(syscall.SIGTERM)
			_ = l.wait()
			return true
		}
	}
}

// wait waits for the program's end.
func (l *mixedLab) wait() error {
	if !l.over {
		l.result = <-l.ended
		l.over = true
	}
	return l.result
}

// finish waits for the end, and reads the report.
func (l *mixedLab) finish() (lab.Report, error) {
	if err := l.wait(); err != nil {
		return lab.Report{}, fmt.Errorf("%w\n%s", err, l.out.String())
	}
	return readReport(l.report)
}

// await waits until an iteration is done; false when the lab ends before.
func (l *mixedLab) await(iteration int64, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		reply, err := lab.Ask(l.dir(), lab.Request{Op: "status"})
		if err == nil && reply.Status != nil && reply.Status.Iteration >= iteration {
			return true
		}
	}
	return false
}

// dir is the lab's own folder, "" while there is none.
func (l *mixedLab) dir() string {
	found, _ := filepath.Glob(filepath.Join(l.temp, "falcon-lab-*", "run-*", "control.sock"))
	if len(found) != 1 {
		return ""
	}
	return filepath.Dir(found[0])
}

// agentLogs is what the agents have logged so far.
func (l *mixedLab) agentLogs() string {
	var b strings.Builder
	names, _ := filepath.Glob(filepath.Join(l.dir(), "logs", "*agent*"))
	for _, name := range names {
		text, _ := os.ReadFile(name)
		b.Write(text)
	}
	return b.String()
}

// judgeMixed: one death, one recovery, the weights of the undisturbed run.
func judgeMixed(r lab.Report) []string {
	bad := append(judgeSums(r), judgeOrder(r)...)
	if len(r.Recoveries) != 1 {
		return append(bad, fmt.Sprintf("%d recoveries, want one", len(r.Recoveries)))
	}
	return append(bad, judgeOne(r.Recoveries[0], []int{5})...)
}

func mixedScenario(more ...lab.Event) lab.Scenario {
	return recoverScenario(
		"versions",
		recoverLayouts[1].shape,
		1,
		append(more, lab.Event{AtIteration: pointAt, Kill: "rank 5", Point: "backward"})...,
	)
}

// Engine with console, agents, hook and adapter of this release and of the one before, in all
// pairs, with a kill each: equal weights, or one sentence and no fence. What each release has
// recorded the other plays, or refuses in one sentence.
func TestVersionPairs(t *testing.T) {
	r := prepareReleases(t)
	list := releaseMixes()
	if *labVersionsMost > 0 {
		list = list[:min(*labVersionsMost, len(list))]
	}
	for _, m := range list {
		t.Run(strings.ReplaceAll(m.String(), " ", "_"), func(t *testing.T) {
			l := startMixed(t, r.folder(t, m), mixedScenario())
			if r.isBlind(m) {
				r.judgeBlind(t, l)
				return
			}
			if m.isUndeclared() && l.asksAPerson() {
				return
			}
			report, err := l.finish()
			if err != nil {
				t.Fatal(err)
			}
			if bad := judgeMixed(report); len(bad) > 0 {
				t.Errorf("%s\n%s", strings.Join(bad, "; "), l.out.String())
			}
			r.judgeRecording(t, l.recording)
		})
	}
}

// judgeBlind: agents that can't read the hook's files say so, and nobody is fenced for it.
func (r releases) judgeBlind(t *testing.T, l *mixedLab) {
	t.Helper()
	logs := ""
	for end := time.Now().Add(blindFor); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if now := l.agentLogs(); now != "" { // the lab may end, and takes its logs along
			logs = now
		}
	}
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	<-l.ended
	if !strings.Contains(logs, "version "+r.formats[1]) ||
		!strings.Contains(logs, "install hook and agent of one release") {
		t.Errorf("the agents do not say that they can't read the hook's files:\n%s\n%s", logs, l.out.String())
	}
	if out := l.out.String(); strings.Contains(out, "fenced") {
		t.Errorf("somebody was fenced:\n%s", out)
	}
}

// judgeRecording plays a recording with both releases.
func (r releases) judgeRecording(t *testing.T, file string) {
	t.Helper()
	for _, before := range []bool{true, false} {
		out, err := exec.Command(
			filepath.Join(r.of(before), "falcon"),
			"replay",
			file,
			"--headless",
		).CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("another version")) {
			t.Errorf("replay by the release before (%v): %v\n%s", before, err, out)
		}
	}
}

// upgrade is what is replaced by this release while the job runs, and what is killed then so
// that the next one is started from it.
type upgrade struct {
	name  string
	files []string
	sc    lab.Scenario
	args  []string
}

// upgrades replace programs in the midst of a recovery, of a swap and of a countdown.
func upgrades() []upgrade {
	out := []upgrade{
		{
			"hook and adapter before a recovery",
			[]string{"falcon-agent", "falcon-trainer", "lib/libfalcon_hook.so"},
			mixedScenario(
				lab.Event{AtIteration: pointAt - 15, Kill: "agent n0"},
				lab.Event{AtIteration: pointAt - 15, Kill: "agent n1"},
				lab.Event{AtIteration: pointAt - 15, Kill: "agent n2"},
				lab.Event{AtIteration: pointAt - 15, Kill: "agent n3"},
				lab.Event{AtIteration: pointAt - 15, Kill: "agent n4"},
			), nil,
		},
	}
	for _, ms := range []float64{50, 200, 400} {
		out = append(out,
			upgrade{
				fmt.Sprintf("engine %.0f ms into a recovery", ms),
				[]string{"falcon"},
				mixedScenario(lab.Event{AtIteration: pointAt, Kill: "console", AfterMs: ms}), nil,
			},
			upgrade{
				fmt.Sprintf("an agent %.0f ms into a recovery", ms),
				[]string{"falcon-agent"},
				mixedScenario(lab.Event{AtIteration: pointAt, Kill: "agent n1", AfterMs: ms}), nil,
			})
	}
	return out
}

// Each program is upgraded while the job runs on the release before.
func TestUpgradesInTheMidst(t *testing.T) {
	r := prepareReleases(t)
	list := upgrades()
	if *labVersionsMost > 0 {
		list = list[:min(*labVersionsMost, len(list))]
	}
	for _, u := range list {
		t.Run(strings.ReplaceAll(u.name, " ", "_"), func(t *testing.T) {
			bin := r.folder(t, releaseMix{true, true, true, true})
			l := startMixed(t, bin, u.sc, u.args...)
			if !l.await(3, time.Minute) {
				t.Fatalf("the lab does not train\n%s", l.out.String())
			}
			for _, name := range u.files {
				r.place(t, bin, name, false)
			}
			if l.asksAPerson() { // the processes have declared nothing
				return
			}
			report, err := l.finish()
			if err != nil {
				t.Fatal(err)
			}
			if bad := judgeMixed(report); len(bad) > 0 {
				t.Errorf("%s\n%s", strings.Join(bad, "; "), l.out.String())
			}
		})
	}
}

// Swaps go on while their engine or an agent is upgraded in their midst.
func TestUpgradesInASwap(t *testing.T) {
	r := prepareReleases(t)
	for _, d := range []death{{"console", "dump"}, {"agent n5", "swap"}} {
		t.Run(d.who, func(t *testing.T) {
			bin := r.folder(t, releaseMix{true, true, true, true})
			l := startMixed(
				t,
				bin,
				swapScenario("upgrade", lab.Event{Kill: d.who, OnStep: d.step}),
				"--approve", "s3",
			)
			if !l.await(15, time.Minute) { // its engine and agents have started by then
				t.Fatalf("the lab does not train\n%s", l.out.String())
			}
			r.place(t, bin, "falcon", false)
			r.place(t, bin, "falcon-agent", false)
			report, err := l.finish()
			if bad := d.judge(report, err); len(bad) > 0 {
				t.Errorf("%s\n%s", strings.Join(bad, "; "), l.out.String())
			}
		})
	}
}
