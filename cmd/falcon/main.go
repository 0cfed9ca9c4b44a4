// Command falcon is the operator's binary. It parses flags, wires parts and
// owns exit codes: 0 on success, 1 on a failure of the work, 2 on wrong use.
// It holds no logic of its own.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/tui/clean"
)

// errUsage marks wrong use: exit code 2. Wrap it with what to do instead.
var errUsage = errors.New("usage")

func main() {
	os.Exit(execute(os.Args[1:]))
}

func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
	reportLostGuardian()
	if err == nil {
		return 0
	}
	var code exitError
	if errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintf(os.Stderr, "falcon: %s\n", sentence(err))
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

// sentence is err on one line that is safe to print: joined errors have a line
// each, and some quote what came from files or from other machines. The usage
// marker is for the exit code only.
func sentence(err error) string {
	lines := strings.Split(strings.TrimPrefix(err.Error(), errUsage.Error()+": "), "\n")
	for i, l := range lines {
		lines[i] = clean.String(strings.TrimSpace(l))
	}
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "; ")
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "falcon",
		Short:         "Operations console for slow and failed ranks in large training jobs",
		Example:       "  falcon lab run\n  falcon console --config falcon.yaml",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(flagError)
	// One line per command group; each lives in a file of its name.
	root.AddCommand(detectCommand())
	root.AddCommand(planCommand())
	root.AddCommand(
		serveCommand(),
		certsCommand(),
		incidentCommand(),
		historyCommand(),
		probeCommand(),
		decideCommand(),
		deviceCommand(),
		explainCommand(),
		validateCommand(),
		journalCommand(),
	)
	root.AddCommand(recoveryCommand(), recoverCommand())
	root.AddCommand(rankCommand(), nodeCommand(), collectCommand())
	root.AddCommand(storeCommand())
	root.AddCommand(labCommand())
	root.AddCommand(consoleCommand(), contextCommand(), replayCommand())
	root.AddCommand(versionCommand(), manCommand())
	judgeGroups(root)
	completeFlags(root)
	return root
}

// judgeGroups makes an unknown argument of a command group wrong use, where
// cobra would print its help and succeed.
func judgeGroups(c *cobra.Command) {
	for _, sub := range c.Commands() {
		judgeGroups(sub)
	}
	if c.Runnable() {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}
