package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// envDir marks every process of a lab, so that leftovers can be distinguished from
// other processes without trusting process ids.
const envDir = "FALCON_LAB_DIR"

// IsBelow reports whether this process was started by a lab.
func IsBelow() bool { return os.Getenv(envDir) != "" }

// envNode is the node that a process of the lab lives on, by its index.
const envNode = "FALCON_LAB_NODE"

// place is where one lab keeps its files; the lock is held while it lives.
type place struct {
	dir  string // state, logs, certificates, sockets
	shm  string // one folder per node for the rings
	lock *os.File
}

func (p *place) statePath() string {
	return filepath.Join(p.dir, "state")
}

func (p *place) checkpoints() string {
	return filepath.Join(p.dir, "checkpoints")
}

func (p *place) rankSocket() string {
	return filepath.Join(p.dir, "ranks.sock")
}

// labsDirectory is the folder of all labs of this user.
func labsDirectory() string {
	return filepath.Join(os.TempDir(), "falcon-lab-"+strconv.Itoa(os.Getuid()))
}

// claimPlace makes a fresh place and locks it, after clearing what killed labs left.
func claimPlace() (*place, error) {
	base := labsDirectory()
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, fmt.Errorf("lab: can't make %s: %w", base, err)
	}
	if err := checkOwner(base); err != nil {
		return nil, err
	}
	clearDead(base)
	dir, err := os.MkdirTemp(base, "run-")
	if err != nil {
		return nil, fmt.Errorf("lab: can't make a folder under %s: %w", base, err)
	}
	lock, err := lockNew(dir)
	if err != nil {
		return nil, err
	}
	p := &place{dir: dir, shm: shmFolder(dir), lock: lock}
	if err := os.Mkdir(p.shm, 0o700); err != nil {
		return nil, fmt.Errorf("lab: can't make %s: %w", p.shm, err)
	}
	return p, nil
}

// checkOwner refuses a folder that another user made under the name of ours:
// keys and sockets will lie below it.
func checkOwner(base string) error {
	info, err := os.Lstat(base)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok ||
		!info.IsDir() ||
		int(stat.Uid) != os.Getuid() ||
		info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf(
			"lab: %s is not a folder of this user alone; remove it or set TMPDIR to another folder",
			base,
		)
	}
	return nil
}

func shmFolder(dir string) string {
	return filepath.Join("/dev/shm", "falcon-lab-"+strconv.Itoa(os.Getuid())+"-"+filepath.Base(dir))
}

var errLocked = errors.New("lab: locked by a living lab")

// lockNew locks a place that is being made. The lock gets its name once it is
// held: one that others see and no process holds is a dead lab's.
func lockNew(dir string) (*os.File, error) {
	f, err := lockExisting(filepath.Join(dir, "new"))
	if err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "lock")); err != nil {
		f.Close()
		return nil, fmt.Errorf("lab: %w", err)
	}
	return f, nil
}

func lockExisting(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, errLocked
	}
	return f, nil
}

// clearDead removes places whose lab no longer holds its lock. A place that is
// being made has no lock file yet, so the young are left alone.
func clearDead(base string) {
	const young = time.Minute
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		info, err := e.Info()
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil && time.Since(info.ModTime()) < young {
			continue
		}
		lock, err := lockExisting(filepath.Join(dir, "lock"))
		if err != nil {
			continue
		}
		(&place{dir: dir, shm: shmFolder(dir), lock: lock}).removePlace()
	}
}

// removePlace kills what still runs there and deletes the files.
func (p *place) removePlace() {
	for _, pid := range processesOf(p.dir) {
		_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
	}
	_ = os.RemoveAll(p.shm)
	_ = os.RemoveAll(p.dir)
	_ = p.lock.Close()
}

// processesOf finds living processes that carry the place's mark and others.
func processesOf(dir string, marks ...string) []int {
	marks = append(marks, envDir+"="+dir)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env := environmentOf(pid)
		if !slices.ContainsFunc(marks, func(m string) bool {
			return !slices.Contains(env, m)
		}) {
			out = append(out, pid)
		}
	}
	return out
}

// environmentOf is the environment that a process was started with; nothing where it
// can't be read.
func environmentOf(pid int) []string {
	env, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return strings.Split(string(env), "\x00")
}

// variableOf is a variable of a process's environment, "" where there is none.
func variableOf(pid int, name string) string {
	for _, v := range environmentOf(pid) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// Running lists the folders of living labs.
func Running() []string {
	entries, err := os.ReadDir(labsDirectory())
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		dir := filepath.Join(labsDirectory(), e.Name())
		if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
			continue
		}
		lock, err := lockExisting(filepath.Join(dir, "lock"))
		if errors.Is(err, errLocked) {
			out = append(out, dir)
		} else if err == nil {
			lock.Close()
		}
	}
	return out
}
