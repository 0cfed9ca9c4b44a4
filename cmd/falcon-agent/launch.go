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

// runTraining becomes the training process: the hook is preloaded, or NCCL loads the
// profiler plug-in, and no parent of ours stands between the launcher and it.
func runTraining(args []string, out io.Writer) error {
	flags := newFlagSet("falcon-agent run")
	job := flags.String("job", "", "name of the job, shared by all its processes")
	hook := flags.String("hook", "", "path of "+hookName)
	monitor := flags.Bool(
		"monitor",
		false,
		"watch only: nothing is preloaded where NCCL has its profiler interface (2.28 and newer); such a job can't be held, tested or recovered",
	)
	memory := addReserve(flags)
	nccl := flags.String(
		"nccl",
		"",
		"with --monitor: the version of the job's NCCL, 2.28.9 for example (default: by the files that the command may load)",
	)
	if help, err := parseFlags(flags, args, out); help || err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("%w: no command to start: falcon-agent run [--job NAME] -- CMD [ARGUMENT ...]",
			errUsage)
	}
	if err := checkJobName(*job); err != nil {
		return err
	}
	if *nccl != "" && (!*monitor || parseNCCL(*nccl) == 0) {
		return fmt.Errorf("%w: --nccl %q: it takes a version such as 2.28.9, and goes with --monitor",
			errUsage, *nccl)
	}
	if err := memory.check(flags); err != nil {
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
	by := watchers{hook: path}
	if *monitor {
		by = monitorWith(path, cmd, *nccl)
	}
	env := environment(os.Environ(), by, *job)
	if !*monitor { // a job that is only watched is never tested
		env = memory.addTo(env)
		memory.tell(env, os.Stderr)
	}
	err = syscall.Exec(cmd, flags.Args(), env)
	return fmt.Errorf("%w: %s: %w", errLaunch, cmd, err)
}

func monitorWith(hook, command, nccl string) watchers {
	versions := []int{parseNCCL(nccl)}
	if nccl == "" {
		versions = ncclVersions("/", command, os.Getenv)
	}
	return monitoringBy(hook, pluginBeside(hook, os.Getenv(pluginVariable)), versions)
}

// checkJobName keeps the name usable in a file name and on a terminal.
func checkJobName(job string) error {
	const nameMax = 48
	bad := func(r rune) bool {
		return (r < 'a' || r > 'z') &&
			(r < 'A' || r > 'Z') &&
			(r < '0' || r > '9') &&
			!strings.ContainsRune("-_.", r)
	}
	if len(job) > nameMax || strings.ContainsFunc(job, bad) {
		return fmt.Errorf("%w: job %q: use at most %d letters, digits, '-', '_' and '.'",
			errUsage, job, nameMax)
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
		return "", fmt.Errorf("%w: LD_PRELOAD can't hold the space or colon in %q; move the hook",
			errLaunch, abs)
	}
	if info, err := os.Stat(abs); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: there is no hook at %s; build it, or name it with --hook", errLaunch, abs)
	}
	return abs, nil
}

// environment puts the hook before what is preloaded already, and names the plug-in
// and the job.
func environment(env []string, by watchers, job string) []string {
	preload := by.hook
	given := ""
	var out []string
	for _, kv := range env {
		key, value, _ := strings.Cut(kv, "=")
		switch {
		case key == "LD_PRELOAD":
			given = value
		case key == "FALCON_JOB" && job != "", key == pluginVariable && by.plugin != "":
		default:
			out = append(out, kv)
		}
	}
	if given != "" && (preload == "" || given == preload || strings.HasPrefix(given, preload+":")) {
		preload = given
	} else if given != "" {
		preload += ":" + given
	}
	if job != "" {
		out = append(out, "FALCON_JOB="+job)
	}
	if by.plugin != "" {
		out = append(out, pluginVariable+"="+by.plugin)
	}
	if preload != "" {
		out = append(out, "LD_PRELOAD="+preload)
	}
	return out
}
