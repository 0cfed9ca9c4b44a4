package peek

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Times of a Python stack: falcon_torch looks for a request every half second.
const (
	pythonWithin = 2 * time.Second
	pythonLook   = 50 * time.Millisecond
	pythonLines  = LinesMost
)

// askName and stackName are the files by which the Python stacks of a process are asked for and
// given; falcon_torch has the same names.
func askName(dir, process string) string {
	return filepath.Join(dir, "falcon-ask."+process)
}

func stackName(dir, process string) string {
	return filepath.Join(dir, "falcon-stack."+process)
}

// Python asks a process for the stacks of its Python threads, which falcon_torch writes by a
// thread of its own, and waits for them a moment. A process without it, or whose
// interpreter does not let that thread run, gives none. dir is where the hook has the
// process's file, process its name (proof.Claim.Name), and uid its user.
func Python(dir, process string, uid int) *falconv1.PeekPart {
	part := &falconv1.PeekPart{Source: "python"}
	ask, out := askName(dir, process), stackName(dir, process)
	_ = os.Remove(out) // of a request that was given up
	f, err := os.OpenFile(
		ask,
		os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW,
		0o644,
	)
	if err != nil && !errors.Is(err, os.ErrExist) {
		part.Note = "can't be asked for: " + plainError(err)
		return part
	}
	if err == nil {
		_ = f.Close()
	}
	defer func() {
		_ = os.Remove(ask)
		_ = os.Remove(out)
	}()
	for until := time.Now().Add(pythonWithin); time.Now().Before(until); time.Sleep(pythonLook) {
		if _, err := os.Lstat(out); err != nil {
			continue
		}
		got := tailOf("python", out, "", uid, pythonLines, false, identity{})
		got.Path = ""
		got.ChangedUnixNs = 0
		got.Bytes = 0
		return got
	}
	part.Note = fmt.Sprintf(
		"no answer within %s: the process runs without falcon_torch's adapter, or its interpreter is inside a call that holds the lock (GIL)",
		pythonWithin,
	)
	return part
}
