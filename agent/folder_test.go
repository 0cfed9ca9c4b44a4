package agent

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon/agent/internal/ownfile"
	"github.com/failslow/falcon/agent/ring"
)

const stranger = 61234

// squatters are what a stranger can put in the place of a file.
var squatters = map[string]func(path string) error{
	"file": func(p string) error {
		return os.WriteFile(p, []byte("{}"), 0o600)
	},
	"folder": func(p string) error { return os.Mkdir(p, 0o755) },
	"full folder": func(p string) error {
		return os.MkdirAll(filepath.Join(p, "x"), 0o755)
	},
	"link": func(p string) error { return os.Symlink("/etc/passwd", p) },
	"pipe": func(p string) error { return unix.Mkfifo(p, 0o600) },
	"device": func(p string) error {
		return unix.Mknod(p, unix.S_IFCHR|0o600, 1<<8|3)
	},
}

// asRoot skips what needs a second user.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can play two users")
	}
}

// putStrange has a stranger's thing stand at a path.
func putStrange(t *testing.T, path string, put func(string) error) {
	t.Helper()
	if err := errors.Join(put(path), os.Lchown(path, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
}

// sharedFolder is one as /dev/shm is.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "falcon-test-")
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o777|os.ModeSticky)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func folderConfig(shared string) Config {
	cfg := launchConfig()
	cfg.Node, cfg.ShmDir = "n1", shared
	return cfg
}

// everyName is the path of each thing that an agent writes in or below shm_dir: where it
// is now, and where agents of earlier releases had it.
func everyName(cfg Config) []string {
	own := &Folder{
		shared: cfg.ShmDir,
		path:   filepath.Join(cfg.ShmDir, ownfile.FolderName(os.Geteuid())),
		job:    cfg.Job,
		node:   cfg.Node,
	}
	names := own.places()
	for _, name := range SharedNames(cfg.Job, cfg.Node) {
		names = append(names, filepath.Join(cfg.ShmDir, name))
	}
	return names
}

// Before the start a stranger has taken each name in turn, in each way: the agent says
// so, starts, and launches.
func TestSquattersBeforeTheStart(t *testing.T) {
	asRoot(t)
	plays := 0
	for what, put := range squatters {
		for i := range everyName(folderConfig("/")) {
			cfg := folderConfig(sharedFolder(t))
			path := everyName(cfg)[i]
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			putStrange(t, path, put)
			var said bytes.Buffer
			own, err := OpenFolder(cfg, slog.New(slog.NewTextHandler(&said, nil)))
			if err != nil {
				t.Errorf("a %s at %s: %v", what, path, err)
				continue
			}
			below := filepath.Dir(path) != cfg.ShmDir ||
				filepath.Base(path) == ownfile.FolderName(os.Geteuid())
			if named := strings.Contains(said.String(), path); below && !named {
				t.Errorf("a %s at %s is not named: %s", what, path, &said)
			}
			launchesStill(t, cfg, own, what+" at "+path)
			plays++
		}
	}
	t.Logf("%d plays", plays)
}

// While the agent runs a stranger takes each name that is free.
func TestSquattersAtRunTime(t *testing.T) {
	asRoot(t)
	for what, put := range squatters {
		cfg := folderConfig(sharedFolder(t))
		own, err := OpenFolder(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range everyName(cfg) {
			_, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) == cfg.ShmDir {
				putStrange(t, path, put) // its own folder is closed to strangers
			}
		}
		launchesStill(t, cfg, own, what)
	}
}

// The folder itself goes, as when the files of users that log out are removed, and a
// stranger is quicker than the agent.
func TestTheFolderIsTakenAway(t *testing.T) {
	asRoot(t)
	for what, put := range squatters {
		cfg := folderConfig(sharedFolder(t))
		own, err := OpenFolder(cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			err = os.RemoveAll(own.path)
		}
		if err != nil {
			t.Fatal(err)
		}
		putStrange(t, own.path, put)
		launchesStill(t, cfg, own, what)
	}
}

// launchesStill plays a launch, as in a recovery.
func launchesStill(t *testing.T, cfg Config, own *Folder, what string) {
	t.Helper()
	m := &fakeMachine{how: map[int]string{}}
	a := New(cfg, Options{
		Now:       time.Now,
		Folder:    own,
		Launch:    m,
		Directory: newFakeDir(t),
	})
	ship := &fakeShip{}
	a.Bind(ship)
	now := time.Now()
	a.Start(now)
	a.Command(launchCommand(1, 2, 4, 5))
	a.Tick(now.Add(time.Second))
	if len(m.started) != 2 {
		t.Errorf("a %s: %d processes were started: %v", what, len(m.started), ship.results())
	}
	again := New(cfg, Options{
		Now:       time.Now,
		Folder:    own,
		Launch:    m,
		Directory: newFakeDir(t),
	})
	again.Bind(&fakeShip{})
	if err := again.launcher.CheckRecord(); err != nil || !again.launcher.Fresh(2) {
		t.Errorf("a %s: the next agent does not know the launch: %v", what, err)
	}
}

// What can't be removed keeps the agent from starting, in one sentence with a remedy.
func TestPlacesThatCanNotBeCleared(t *testing.T) {
	asRoot(t)
	cfg := folderConfig(sharedFolder(t))
	cfg.RankTable = filepath.Join(t.TempDir(), "table.json")
	for _, path := range []string{cfg.RankTable, cfg.RankTable + ".new", cfg.RankTable + ".generation"} {
		putStrange(t, path, squatters["full folder"])
		_, err := OpenFolder(cfg, slog.New(slog.DiscardHandler))
		if !errors.Is(err, ownfile.ErrPlace) ||
			!strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), "remove it, or name another") {
			t.Errorf("%s: %v", path, err)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent that is upgraded goes on with what the one before has left in shm_dir itself.
func TestFilesOfAnEarlierRelease(t *testing.T) {
	asRoot(t)
	cfg := folderConfig(sharedFolder(t))
	m := &fakeMachine{how: map[int]string{}}
	before := New(cfg, Options{
		Now:       time.Now,
		Launch:    m,
		Directory: newFakeDir(t),
	}) // writes into shm_dir
	before.Bind(&fakeShip{})
	before.Start(time.Now())
	before.Command(launchCommand(1, 2, 4, 5))
	before.Tick(time.Now())
	if err := before.HandOver(stream(5)); err != nil || len(m.started) != 2 {
		t.Fatal(err, m.started)
	}
	own, err := OpenFolder(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	next := New(cfg, Options{
		Now:       time.Now,
		Folder:    own,
		Launch:    m,
		Directory: newFakeDir(t),
	})
	h := next.TakeOver()
	if h == nil || h.Next != 5 || !next.launcher.Fresh(2) {
		t.Errorf("handover %v, the launch is known: %v", h, next.launcher.Fresh(2))
	}
	for _, k := range fileKinds {
		if _, err := os.Lstat(filepath.Join(cfg.ShmDir, k.nameFor(cfg.Job, cfg.Node))); err == nil {
			t.Errorf("%s still lies in shm_dir", k)
		}
	}
}

// Every constant of the type is in the table, and no file name is made anywhere else.
func TestEveryNameIsInTheTable(t *testing.T) {
	known := map[string]bool{
		"falcon-ask.":   true,
		"falcon-stack.": true,
		"falcon-hook":   true,
		"falcon-":       true,
	}
	for _, k := range fileKinds {
		known[string(k)] = true
	}
	found := map[string]bool{}
	for _, dir := range []string{
		".", "ring", "peek", "launch", "relay", "table", "act", "tail", "survey", "store", "ship",
		"internal/ownfile",
	} {
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range sources {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					text, err := strconv.Unquote(l.Value)
					if err == nil && strings.HasPrefix(text, "falcon-") && !strings.Contains(text, " ") {
						found[text] = true
					}
				}
				return true
			})
		}
	}
	for name := range found {
		if !known[name] {
			t.Errorf(
				"%q is made into a name beside the table fileKinds: what stands in its place is not looked for",
				name,
			)
		}
	}
	for _, k := range fileKinds {
		if !found[string(k)] {
			t.Errorf("%q is in no source", k)
		}
	}
	t.Logf("%v", slices.Sorted(maps.Keys(found)))
}

// Hooks' files are found in the shared folder and in the folders of all users below it;
// what has such a name and is none is logged once.
func TestFoldersOfUsers(t *testing.T) {
	asRoot(t)
	shared := sharedFolder(t)
	list := func() []string {
		t.Helper()
		list, taken, err := ring.Folders(shared)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range list {
			list[i], _ = filepath.Rel(shared, path)
		}
		for _, t := range taken {
			list = append(list, t.Text)
		}
		return list
	}
	for name, put := range map[string]func(path string) error{
		"falcon-1": func(p string) error {
			return errors.Join(os.Mkdir(p, 0o700), os.Chown(p, 1, 1))
		},
		"falcon-2": func(p string) error {
			return errors.Join(
				os.Mkdir(p, 0o700),
				os.Chown(p, 2, 2),
				os.Chmod(p, 0o777),
			)
		},
		"falcon-3": func(p string) error { return os.Symlink("/etc", p) },
		"falcon-4": func(p string) error {
			return errors.Join(os.Mkdir(p, 0o700), os.Chown(p, stranger, -1))
		},
		"falcon-lab-0": func(p string) error { return os.Mkdir(p, 0o700) },
		"other":        func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		if err := put(filepath.Join(shared, name)); err != nil {
			t.Fatal(err)
		}
	}
	got := list()
	if !slices.Equal(got[:3], []string{".", "falcon-1", "falcon-4"}) || len(got) != 6 {
		t.Fatalf("%q", got)
	}
	for i, want := range []string{
		"falcon-2 is no folder that only user 2",
		"falcon-3 is no folder",
		"falcon-4 belongs to user 61234",
	} {
		if !strings.Contains(got[3+i], want) {
			t.Errorf("%q, want %q", got[3+i], want)
		}
	}
	if err := os.WriteFile(filepath.Join(shared, "falcon-4", "falcon.j.77"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(folderConfig(shared), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if got := list(); !slices.Equal(got[:4], []string{".", "falcon-0", "falcon-1", "falcon-4"}) ||
		len(got) != 5 {
		t.Errorf("after the start: %q", got)
	}
}
