// Command falcon-agent is the node daemon, and starts training processes with
// the hook. It parses flags, wires parts and owns exit codes: 0 on success, 1
// on a failure of the work, 2 on wrong use. It holds no logic of its own.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/failslow/falcon/agent"
	"github.com/failslow/falcon/backend/api/version"
)

// errUsage marks wrong use: exit code 2.
var errUsage = errors.New("usage")

const usage = `falcon-agent follows the training processes of one machine and speaks for
them to the engine.

Usage:
  falcon-agent --config agent.yaml [--check]
  falcon-agent run [--job NAME] [--hook PATH] [--test-mb MIB] [--monitor [--nccl VERSION]] -- CMD [ARGUMENT ...]
  falcon-agent inspect FILE
  falcon-agent version

--check looks at the configuration, the agent's folder and its certificate, starts
nothing, and ends with 1 where something is wrong.

"run" starts a training process with the hook. It becomes that process, so
nothing stands between the launcher and the training. "inspect" prints what the
hook of one process says, from its file in /dev/shm: among it, whether the
process is held at a cut, and how many calls its gates still let through. "version"
prints the version and the formats that this agent reads and writes.

Examples:
  falcon-agent --config /etc/falcon/agent.yaml
  falcon-agent run --job gpt -- python pretrain_gpt.py --tensor-model-parallel-size 4

Every key of the configuration file, with its default:

`

func main() {
	os.Exit(runCommand(os.Args[1:], os.Stdout, os.Stderr))
}

func runCommand(args []string, out, errs io.Writer) int {
	err := dispatch(args, out)
	if err == nil {
		return 0
	}
	for line := range strings.Lines(withoutMarker(err)) {
		fmt.Fprintf(errs, "falcon-agent: %s\n", strings.TrimSpace(line))
	}
	if errors.Is(err, errUsage) || errors.Is(err, agent.ErrConfig) {
		return 2
	}
	return 1
}

// withoutMarker drops the usage marker, which is for the exit code only.
func withoutMarker(err error) string {
	s := err.Error()
	cut := errUsage.Error() + ": "
	if len(s) > len(cut) && s[:len(cut)] == cut {
		return s[len(cut):]
	}
	return s
}

func dispatch(args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "run" {
		return runTraining(args[1:], out)
	}
	if len(args) > 0 && args[0] == "inspect" {
		return inspectProcess(args[1:], out)
	}
	if len(args) > 0 && args[0] == "version" {
		return printVersion(args[1:], out)
	}
	flags := newFlagSet("falcon-agent")
	path := flags.String("config", "", "configuration file (YAML)")
	check := flags.Bool("check", false,
		"look at the configuration, the agent's folder and its certificate, start nothing, and end")
	if help, err := parseFlags(flags, args, out); help || err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: unexpected argument %q: use --config FILE, or run -- CMD",
			errUsage, flags.Arg(0))
	}
	if *path == "" {
		return fmt.Errorf("%w: --config FILE is missing; falcon-agent --help shows an example file", errUsage)
	}
	cfg, err := agent.ReadConfig(*path)
	if err != nil {
		return err
	}
	if *check {
		return checkAgent(cfg, out)
	}
	return serveAgent(cfg)
}

func newFlagSet(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// parseFlags prints the help when it is asked for.
func parseFlags(flags *flag.FlagSet, args []string, out io.Writer) (help bool, err error) {
	err = flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(out, usage, agent.Example)
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w; see falcon-agent --help", errUsage, err)
	}
	return false, nil
}

func printVersion(args []string, out io.Writer) error {
	flags := newFlagSet("falcon-agent version")
	if help, err := parseFlags(flags, args, out); help || err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: unexpected argument %q: falcon-agent version takes none",
			errUsage, flags.Arg(0))
	}
	_, err := fmt.Fprint(out, version.Describe("falcon-agent", agent.Formats()))
	return err
}
