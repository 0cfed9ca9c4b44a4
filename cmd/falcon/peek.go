package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/report"
)

const rankLogsHelp = `Show the last lines that a rank has printed, as its node keeps them: of its standard output
and error where these are files, and of the files that logs.files in the agent's
configuration names. It works for a rank that has ended too.

The agent reads regular files of the process's own user only, removes escape sequences and
control characters, and masks what looks like a secret, as far as it can be recognised.
Who asked is in the audit; the text is not. It needs the role operator.`

const rankStackHelp = `Show where the threads of a rank stand when it hangs: their states, what each waits for in
the kernel, and the stacks of Python threads where the rank runs with falcon_torch. The
process goes on meanwhile: no debugger is attached and no signal is sent.

A rank that trains is left alone unless --sure is given. It needs the role approver; who
asked is in the audit.`

const nodeKernelHelp = `Show what the kernel of a node has said of GPUs, bus, memory, network and storage: Xid errors
with what they mean and what to do, processes killed for want of memory, PCIe errors,
links that went down, newest last. It needs the role operator; who asked is in the audit.`

// peekMost is how many lines of a source can be asked for.
const peekMost = 200

func rankCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "rank",
		Short:   "Show what a rank has printed, or where its threads stand",
		Example: "  falcon rank logs 3\n  falcon rank stack 3",
	}
	var target engineTarget
	target.declareFlags(c)
	c.AddCommand(
		peekCommand(&target, "log", &cobra.Command{
			Use:     "logs RANK",
			Short:   "Show the last lines that a rank has printed",
			Long:    rankLogsHelp,
			Example: "  falcon rank logs 3 --lines 100",
			Args:    oneArgument("give one rank, such as 3"),
		}),
		peekCommand(&target, "stack", &cobra.Command{
			Use:     "stack RANK",
			Short:   "Show where the threads of a rank stand",
			Long:    rankStackHelp,
			Example: "  falcon rank stack 3",
			Args:    oneArgument("give one rank, such as 3"),
		}),
	)
	return c
}

func nodeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "node",
		Short:   "Show what a node's kernel has said",
		Example: "  falcon node kernel n1",
	}
	var target engineTarget
	target.declareFlags(c)
	kernel := peekCommand(&target, "kernel", &cobra.Command{
		Use:     "kernel NODE",
		Short:   "Show a node's Xid errors, killed processes, PCIe and link errors",
		Long:    nodeKernelHelp,
		Example: "  falcon node kernel n1",
		Args:    oneArgument("give one node, such as n1"),
	})
	kernel.ValidArgsFunction = completeIDs(&target, nodeNames)
	c.AddCommand(kernel)
	return c
}

func nodeNames(ctx context.Context, cl falconv1.ConsoleClient) ([]string, error) {
	r, err := cl.Snapshot(ctx, &falconv1.SnapshotRequest{})
	var out []string
	for _, n := range r.GetNodes() {
		out = append(out, completion(n.GetNode(), "version "+n.GetVersion()))
	}
	return out, err
}

// peekCommand completes a command that has an agent read something.
func peekCommand(t *engineTarget, what string, c *cobra.Command) *cobra.Command {
	q := &falconv1.PeekRequest{What: what}
	lines := 20
	c = documentCommand(c, func(c *cobra.Command, args []string) (report.Peek, error) {
		if lines < 1 || lines > peekMost {
			return report.Peek{}, fmt.Errorf("%w: --lines is %d, it must be from 1 to %d",
				errUsage, lines, peekMost)
		}
		q.Lines = int32(lines)
		if err := aimPeek(q, args[0]); err != nil {
			return report.Peek{}, err
		}
		r, err := ask(
			c,
			t,
			func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.PeekReply, error) {
				return cl.Peek(ctx, q)
			},
		)
		if err != nil {
			return report.Peek{}, err
		}
		return report.PeekOf(what, r), nil
	}, func(w io.Writer, p report.Peek) error {
		return writeString(w, p.Text())
	})
	if what == "log" {
		c.Flags().StringVar(&q.Node, "node", "",
			"ask a node that had the rank before (default: the one that has it)")
	}
	if what == "stack" {
		c.Flags().BoolVar(&q.Sure, "sure", false, "also of a rank that does not stand still")
	} else {
		c.Flags().IntVar(&lines, "lines", lines, "how many of each source, at most 200")
	}
	return c
}

// aimPeek takes the rank or the node.
func aimPeek(q *falconv1.PeekRequest, arg string) error {
	if q.GetWhat() == "kernel" {
		q.Node = arg
		return nil
	}
	n, err := strconv.ParseInt(arg, 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("%w: %q is no rank: give its number, such as 3", errUsage, arg)
	}
	q.Rank = int32(n)
	return nil
}
