package peek

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func write(t *testing.T, path string, text []byte) string {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(path string, lines int) *falconv1.PeekPart {
	return tailOf("file", path, path, os.Geteuid(), lines, false, identity{})
}

// harmless reports whether a terminal would take a line as nothing but text.
func plainText(s string) bool {
	return utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool {
			return r != utf8.RuneError && (!unicode.IsPrint(r) || unicode.Is(unicode.M, r))
		})
}

// Whatever is in a file, what comes out is bounded and printable.
func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		want []string // last lines
		note string
	}{
		"plain":            {"one\ntwo\nthree\n", []string{"two", "three"}, ""},
		"no line end":      {"one\ntwo\nthr", []string{"two", "thr"}, ""},
		"empty":            {"", nil, "nothing was printed"},
		"colours":          {"\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m\n", []string{"red and bold"}, ""},
		"title and link":   {"a\x1b]0;pwned\x07b\x1b]8;;http://x\x1b\\c\n", []string{"abc"}, ""},
		"clears screen":    {"\x1b[2J\x1b[H\x1bcok\n", []string{"ok"}, ""},
		"C1 controls":      {"a\u009b31mb\u0085c\n", []string{"a31mbc"}, ""},
		"NULs":             {"a\x00b\x00\x00c\n\x00\x00\x00\x00\n", []string{"abc"}, ""},
		"invalid UTF-8":    {"a\xff\xfeb\xc3\n", []string{"a\ufffd\ufffdb\ufffd"}, ""},
		"bidi and widths":  {"user\u202etxt.exe\u200b\ufeff\n", []string{"usertxt.exe"}, ""},
		"stacked marks":    {"a" + strings.Repeat("\u0301", 500) + "b\n", []string{"ab"}, ""},
		"progress bar":     {" 10%|#   |\r 50%|##  |\r100%|####|\n", []string{"100%|####|"}, ""},
		"windows line end": {"one\r\ntwo\r\n", []string{"one", "two"}, ""},
		"tab":              {"a\tb\n", []string{"a    b"}, ""},
		"open escape":      {"x\x1b]0;" + strings.Repeat("y", 100) + "\nlast\n", []string{"x", "last"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := read(write(t, filepath.Join(dir, "f"), []byte(c.text)), len(c.want)+1)
			tail := got.Lines[max(0, len(got.Lines)-len(c.want)):]
			if !slices.Equal(tail, c.want) || got.Note != c.note {
				t.Errorf("got %q (%s), want %q (%s)", tail, got.Note, c.want, c.note)
			}
		})
	}
}

func TestLongLinesAreCut(t *testing.T) {
	dir := t.TempDir()
	long := append(bytes.Repeat([]byte("x"), 10<<20), []byte("END\n")...)
	began := time.Now()
	got := read(write(t, filepath.Join(dir, "one"), long), 20)
	if len(got.Lines) != 1 ||
		!strings.HasSuffix(got.Lines[0], "xEND") ||
		len(got.Lines[0]) > lineBytesMost+64 ||
		!strings.Contains(got.Note, "longer than 256 KiB") {
		t.Errorf("%d lines, %q, the first of %d bytes",
			len(got.Lines), got.Note, len(got.Lines[0]))
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %s", took)
	}
	got = read(write(t, filepath.Join(dir, "two"), append(long, []byte("after\n")...)), 20)
	if n := len(got.Lines); n == 0 || got.Lines[n-1] != "after" {
		t.Errorf("%q", got.Lines)
	}
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, "line %d\n", i)
	}
	got = read(write(t, filepath.Join(dir, "many"), []byte(many.String())), 1<<30)
	if n := len(got.Lines); n != LinesMost || got.Lines[n-1] != "line 99999" {
		t.Errorf("%d lines", n)
	}
}

// A file may change while it is read: it is cut, it grows, it is replaced.
func TestFilesThatChange(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "log"), []byte("old\n"))
	was := fileAt(path)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, path, []byte("new\n"))
	got := tailOf("stdout", path, path, os.Geteuid(), 5, false, was)
	if !slices.Equal(got.Lines, []string{"new"}) || !strings.Contains(got.Note, "replaced") {
		t.Errorf("%v", got)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	lines, note, err := readTail(f, 1<<20, 5) // by the size that it had
	if len(lines) != 0 || err != nil || !strings.Contains(note, "cut short") {
		t.Errorf("%q %q %v", lines, note, err)
	}
	// a hole, as copytruncate leaves
	if err := os.WriteFile(path, append(make([]byte, 300<<10), []byte("x\n")...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(path, 5); len(got.Lines) != 1 ||
		got.Lines[0] == "" ||
		!strings.HasSuffix(got.Lines[0], "x") {
		t.Errorf("%q", got.Lines)
	}
	got = read(filepath.Join(dir, "absent"), 5)
	if got.Note != "is not there any more" {
		t.Error(got.Note)
	}
}

// What is no regular file of the process's user is not read, and never waited for.
func TestOnlyOwnRegularFiles(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	link := filepath.Join(dir, "link")
	own := write(t, filepath.Join(dir, "own"), []byte("x\n"))
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/shadow", link); err != nil {
		t.Fatal(err)
	}
	other := tailOf("file", own, own, os.Geteuid()+1, 5, false, identity{})
	for want, got := range map[string]*falconv1.PeekPart{
		"a pipe to whoever":    read(fifo, 5),
		"symbolic link":        read(link, 5),
		"a device or terminal": read("/dev/null", 5),
		"a folder":             read(dir, 5),
		"it is not read":       other,
		"but a device or terminal": tailOf(
			"stdout",
			"/dev/zero",
			"/dev/zero",
			os.Geteuid(),
			5,
			true,
			identity{},
		),
	} {
		if !strings.Contains(got.Note, want) || len(got.Lines) > 0 {
			t.Errorf("got %q and %d lines, want %q", got.Note, len(got.Lines), want)
		}
	}
	// A process may make any link to anything its own user may not read.
	shadow := tailOf("stdout", "/etc/shadow", "/etc/shadow", 65534, 5, true, identity{})
	if len(shadow.Lines) > 0 || shadow.Note == "" {
		t.Errorf("%v", shadow)
	}
}

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		"key AKIAABCDEFGHIJKLMNOP used":                      "key [masked] used",
		"Authorization: Bearer abc.def-123456":               "Authorization: Bearer [masked]",
		"password=hunter2, user=x":                           "password=[masked], user=x",
		`{"api_key": "abc def", "n": 3}`:                     `{"api_key": [masked], "n": 3}`,
		"WANDB_API_KEY=0123456789abcdef0123456789abcdef":     "WANDB_API_KEY=[masked]",
		"git clone https://bob:s3cret@host/repo":             "git clone https://bob:[masked]@host/repo",
		"hf_abcdefghijklmnopqrstuvwxyz0123":                  "[masked]",
		"AWS_SECRET_ACCESS_KEY: 'wJalrXUtnFEMI/K7MDENG/bPx'": "AWS_SECRET_ACCESS_KEY: [masked]",
		"iteration 400 loss 2.13 tokens/s 18320":             "iteration 400 loss 2.13 tokens/s 18320",
		"NCCL WARN Call to ibv_modify_qp failed":             "NCCL WARN Call to ibv_modify_qp failed",
		"File \"/opt/venv/lib/python3.12/site-packages/torch/nn/modules/transformer/attention/module.py\", line 1": "File \"/opt/venv/lib/python3.12/site-packages/torch/nn/modules/transformer/attention/module.py\", line 1",
		"max_tokens=4096 tokenizer=gpt2": "max_tokens=4096 tokenizer=gpt2",
	} {
		if got := cleanLine([]byte(in)); got != want {
			t.Errorf("%q:\ngot  %q\nwant %q", in, got, want)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{
		"\x1b[31mred",
		"a\rb",
		"password=x",
		"\x1b]8;;x\x1b\\y",
		"\xff\x9b",
		strings.Repeat("é", 3000),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw = bytes.ReplaceAll(raw, []byte{'\n'}, nil)
		s := cleanLine(raw)
		if !plainText(s) || len(s) > lineBytesMost+64 {
			t.Errorf("%q became %q", raw, s)
		}
	})
}

func TestExpand(t *testing.T) {
	env := map[string]string{
		"RANK":         "3",
		"SLURM_JOB_ID": "4711",
		"EVIL":         "../../etc/shadow",
		"DOTS":         "..",
		"STAR":         "*",
		"EMPTY":        "",
	}
	for in, want := range map[string]string{
		"/logs/{SLURM_JOB_ID}.{RANK}.out": "/logs/4711.3.out",
		"/logs/plain":                     "/logs/plain",
		"/logs/{EVIL}":                    "",
		"/logs/{DOTS}/x":                  "", "/logs/{STAR}": "", "/logs/{EMPTY}": "", "/logs/{NONE}": "",
	} {
		if got, ok := Expand(in, env); ok != (want != "") || ok && got != want {
			t.Errorf("%s: got %q %t, want %q", in, got, ok, want)
		}
	}
	for bad, want := range map[string]string{
		"relative": "absolute",
		"/a/[":     "syntax",
		"/a/{1}":   "brace",
		"/a}":      "brace",
	} {
		err := CheckPatterns([]string{bad})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := CheckPatterns([]string{
		"/logs/{TORCHELASTIC_RUN_ID}_*/attempt_{TORCHELASTIC_RESTART_COUNT}/{LOCAL_RANK}/stderr.log",
	}); err != nil {
		t.Error(err)
	}
}

// A real process whose output goes to files is read while it runs and after its end, by
// this life of the agent and by the next one.
func TestProcess(t *testing.T) {
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "stdout.log"))
	if err != nil {
		t.Fatal(err)
	}
	launcher := write(t, filepath.Join(dir, "rank-3.out"), []byte("kept by the launcher\n"))
	cmd := exec.Command("sh", "-c", "echo step 1; echo bad news >&2; exec sleep 60")
	cmd.Stdout = out
	cmd.Stderr, err = os.Create(filepath.Join(dir, "stderr.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "RANK=3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	files := []string{filepath.Join(dir, "rank-{RANK}.*")}
	look := func(pid int) []Stream { return Streams("/proc", pid, files) }
	memory := filepath.Join(dir, "memory")
	m := NewMemory(memory)
	living := []Living{{
		Path:   "p",
		MadeNs: 7,
		PID:    cmd.Process.Pid,
		UID:    os.Geteuid(),
		Rank:   3,
	}}
	text := func(m *Memory) string {
		var b strings.Builder
		for _, p := range Tails("/proc", m.Of(3), files, 10) {
			fmt.Fprintf(&b, "%s %s %q %s\n", p.Source, filepath.Base(p.Path), p.Lines, p.Note)
		}
		return b.String()
	}
	const want = "stdout stdout.log [\"step 1\"] \nstderr stderr.log [\"bad news\"] \nfile rank-3.out [\"kept by the launcher\"] \n"
	m.Follow(time.Now(), living)
	for i := 0; text(m) != want; i++ {
		if i == 100 {
			t.Fatalf("while it runs:\n%swant:\n%s", text(m), want)
		}
		time.Sleep(20 * time.Millisecond) // until the shell has printed
	}
	for _, l := range m.Follow(time.Now(), living) {
		m.Found(l, look(l.PID))
	}
	if err := m.Save(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	m.Follow(time.Now(), nil)
	if err := m.Save(); err != nil {
		t.Fatal(err)
	}
	if got := text(m); got != want {
		t.Errorf("after its end:\n%s", got)
	}
	if got := text(NewMemory(memory)); got != want {
		t.Errorf("after a restart of the agent:\n%s", got)
	}
	_ = os.Remove(launcher)
	if got := text(m); !strings.Contains(got, "is not there any more") {
		t.Errorf("without the launcher's file:\n%s", got)
	}
	again := []Living{{
		Path:   "p",
		MadeNs: 8,
		PID:    os.Getpid(),
		UID:    os.Geteuid(),
		Rank:   3,
	}}
	m.Follow(time.Now(), again)
	if got := text(
		m,
	); !strings.Contains(got, fmt.Sprintf(`stderr of process %d before stderr.log ["bad news"]`,
		cmd.Process.Pid)) {
		t.Errorf("once another process has the rank:\n%s", got)
	}
}

// A pipe to the launcher is named as one, with the remedy, and never read from.
func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sleep", "60")
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	k := Known{PID: cmd.Process.Pid, UID: os.Geteuid(), Rank: 1}
	got := Tails("/proc", []Known{k}, nil, 5)
	if len(got) != 1 ||
		got[0].Source != "stdout and stderr" ||
		!strings.Contains(got[0].Note, "logs.files") {
		t.Errorf("%v", got)
	}
}

// Of a pattern, a process that has ended gets no file of the process after it.
func TestPatternOfEnded(t *testing.T) {
	dir := t.TempDir()
	old := write(t, filepath.Join(dir, "rank-1.0.out"), []byte("a"))
	newer := write(t, filepath.Join(dir, "rank-1.2.out"), []byte("b"))
	now := time.Now()
	for path, at := range map[string]time.Time{old: now.Add(-time.Minute), newer: now} {
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	pattern := filepath.Join(dir, "rank-1.*")
	a := newestMatch(pattern, 0)
	b := newestMatch(pattern, now.Add(-30*time.Second).UnixNano())
	if a != newer || b != old {
		t.Errorf("%s, %s", a, b)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := NewMemory(filepath.Join(t.TempDir(), "memory"))
	for i := range 20 {
		m.Follow(time.Unix(int64(i), 0), []Living{{
			Path:   "p",
			MadeNs: int64(i),
			PID:    i + 1,
			Rank:   0,
		}})
	}
	if n := len(m.known); n > endedMost+1 {
		t.Errorf("%d processes of one rank", n)
	}
	if of := m.Of(0); len(of) != 2 || of[0].PID != 20 || of[1].PID != 19 {
		t.Errorf("%v", of)
	}
	var all []Living
	for i := range 3 * rememberedMost {
		all = append(all, Living{Path: fmt.Sprint(i), PID: i, Rank: i})
	}
	if m.Follow(time.Now(), all); len(m.known) > rememberedMost {
		t.Errorf("%d processes", len(m.known))
	}
	write(t, m.path, []byte("{broken"))
	if of := NewMemory(m.path).Of(0); len(of) > 0 {
		t.Error("a broken file is read")
	}
}
