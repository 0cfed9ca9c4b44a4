package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// hookName is the hook's file, in lib/ beside this binary.
const hookName = "libfalcon_hook.so"

var errLaunch = errors.New("can't start the training process")

// runTraining becomes the training process: the hook is preloaded, and no parent
// of ours stands between the launcher and it.
func runTraining(args []string, out io.Writer) error {
	flags := newFlagSet("falcon-agent run")
	job := flags.String("job", "", "name of the job, shared by all its processes")
	hook := flags.String("hook", "", "path of "+hookName)
	if help, err := parseFlags(flags, args, out); help || err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("%w: no command to start: falcon-agent run [--job NAME] -- CMD [ARGUMENT ...]", errUsage)
	}
	if err := checkJobName(*job); err != nil {
		return err
	}
	path, err := hookLibrary(*hook)
	if err != nil {
		return err
	}
	cmd, err := exec.LookPath(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("%w: %w", errLaunch, err)
	}
	err = syscall.Exec(cmd, flags.Args(), environment(os.Environ(), path, *job))
	return fmt.Errorf("%w: %s: %w", errLaunch, cmd, err)
}

// checkJobName keeps the name usable in a file name and on a terminal.
func checkJobName(job string) error {
	const nameMax = 48
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}
	if len(job) > nameMax || strings.ContainsFunc(job, bad) {
		return fmt.Errorf("%w: job %q: use at most %d letters, digits, '-', '_' and '.'", errUsage, job, nameMax)
	}
	return nil
}

// hookLibrary is the one that --hook names, else that in lib/ beside this binary.
func hookLibrary(given string) (string, error) {
	if given == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("%w: %w; name the hook with --hook", errLaunch, err)
		}
		given = filepath.Join(filepath.Dir(self), "lib", hookName)
	}
	abs, err := filepath.Abs(given)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errLaunch, err)
	}
	if strings.ContainsAny(abs, " :") {
		return "", fmt.Errorf("%w: LD_PRELOAD can't hold the space or colon in %q; move the hook", errLaunch, abs)
	}
	if info, err := os.Stat(abs); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: there is no hook at %s; build it, or name it with --hook", errLaunch, abs)
	}
	return abs, nil
}

// environment puts the hook before what is preloaded already, and names the
// job.
func environment(env []string, hook, job string) []string {
	preload := hook
	var out []string
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		switch {
		case key == "LD_PRELOAD":
			if value != "" && value != hook && !strings.HasPrefix(value, hook+":") {
				preload = hook + ":" + value
			} else if value != "" {
				preload = value
			}
		case key == "FALCON_JOB" && job != "":
		default:
			out = append(out, kv)
		}
	}
	if job != "" {
		out = append(out, "FALCON_JOB="+job)
	}
	return append(out, "LD_PRELOAD="+preload)
}
