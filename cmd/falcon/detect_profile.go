package main

import (
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/judge"
)

const detectProfileHelp = `Find slow groups and ranks in one profile window.

FILE is one JSON object; - is standard input:

  {"layout":{"tp":1,"dp":4,"pp":2},
   "groups":[{"dimension":"dp","ranks":[0,1,2,3],"op":"allreduce","bytes":1048576,
              "internode":true,"durations_ms":[[10,10,3,10],[11,10,3,10]]}],
   "self_ms":[20,20,40,20,20,20,20,20]}

durations_ms has one number per member in the order of ranks, or a list of such
lists, one per call. self_ms has one number per rank: device time outside
communication. The ranks of a send or recv are the sender and the receiver; the
receiver's time is used. "healthy" may have groups and self_ms of a window without
a fault.

starts_ms (same shape as durations_ms, in each rank's own clock) and "iterations"
show whether communication overlaps computation. If it does, a rank's ratio is
limited to the ratio to its own healthy past, or without one to its lateness in
one collective.

Members of a call end together: the shortest duration is the transfer, the rest of
each member's duration is its wait. Suspicious are: groups whose transfer is over
1.1 x the median of the other groups of their class (dimension, op, bytes, within
a node or not), or over their own healthy transfer if the class has fewer than
three others; TP and DP groups in which a member waits over twice the transfer;
ranks whose self time is over 1.1 x the median of the ranks with the same stage
and TP coordinate in other replicas.

--json prints the suspicious groups, links and ranks with the rule that applied:
  {"groups":[{"dimension":"dp","ranks":[0,1,2,3],"op":"allreduce","transfer_ms":3,
    "wait_ms":15,"computation":true,"awaited":[2],"rule":"…",…}],"pairs":[],
   "ranks":[{"rank":2,"dp":2,"pp":0,"tp":0,"self_ms":40,"base_ms":20,"ratio":2,"rule":"…",…}],
   "all_slow":false,"slow_stages":[],"checked":{"groups":1,"pairs":0,"ranks":8},"rules":{…}}`

func detectProfileCommand() *cobra.Command {
	var rules peer.Rules
	c := documentCommand(&cobra.Command{
		Use:     "profile FILE",
		Short:   "Find slow groups and ranks in one profile window",
		Long:    detectProfileHelp,
		Example: "  falcon detect profile window.json --json",
		Args:    oneFile,
	}, func(c *cobra.Command, args []string) (judge.ProfileReport, error) {
		if err := checkRules(rules); err != nil {
			return judge.ProfileReport{}, err
		}
		return readInput(c, args[0], func(r io.Reader) (judge.ProfileReport, error) {
			profile, err := trace.ReadProfile(r)
			if err != nil {
				return judge.ProfileReport{}, err
			}
			return judge.Profile(profile, rules)
		})
	}, printProfile)
	rulesFlags(c, &rules)
	return c
}

func rulesFlags(c *cobra.Command, rules *peer.Rules) {
	usual := defaultRules()
	c.Flags().Float64Var(&rules.Suspect, "suspect", usual.Suspect,
		"ratio to the median of its class above which a group or rank is suspicious")
	c.Flags().Float64Var(&rules.WaitOver, "wait-over", usual.WaitOver,
		"multiple of the transfer above which a wait indicates slow computation")
	c.Flags().IntVar(&rules.MinPeers, "min-peers", usual.MinPeers,
		"peers required for a median; with fewer the rank's own healthy profile is used")
}

func checkRules(r peer.Rules) error {
	switch {
	case !(r.Suspect > 1) || math.IsInf(r.Suspect, 0):
		return fmt.Errorf("%w: --suspect %g must be over 1, such as 1.1", errUsage, r.Suspect)
	case !(r.WaitOver > 0) || math.IsInf(r.WaitOver, 0):
		return fmt.Errorf("%w: --wait-over %g must be positive, such as 2", errUsage, r.WaitOver)
	case r.MinPeers < 1:
		return fmt.Errorf("%w: --min-peers %d must be at least 1", errUsage, r.MinPeers)
	}
	return nil
}

func printProfile(w io.Writer, r judge.ProfileReport) error {
	_, err := fmt.Fprintf(w, "%d groups, %d links and %d ranks compared: %d, %d and %d suspicious\n",
		r.Checked.Groups, r.Checked.Pairs, r.Checked.Ranks, len(r.Groups), len(r.Pairs),
		len(r.Ranks))
	if r.Overlap != nil {
		fmt.Fprintf(w, "overlap: gaps between calls are %.0f %% of the ranks' working time\n",
			100*r.Overlap.GapShare)
	}
	if r.AllSlow {
		fmt.Fprintln(w, "all ranks are equally slower: no single rank is at fault")
	}
	if len(r.SlowStages) > 0 {
		fmt.Fprintf(w, "all ranks of stages %v are equally slower\n", r.SlowStages)
	}
	for _, g := range r.Groups {
		fmt.Fprintf(w, "%s group %v %s: %s", g.Dimension, g.Ranks, g.Op, g.Rule)
		if len(g.Awaited) > 0 {
			fmt.Fprintf(w, "; they wait for %v", g.Awaited)
		}
		fmt.Fprintln(w)
	}
	for _, p := range r.Pairs {
		fmt.Fprintf(w, "rank %d to %d: %s\n", p.From, p.To, p.Rule)
	}
	for _, k := range r.Ranks {
		fmt.Fprintf(w, "rank %d (dp %d, stage %d, tp %d): %s\n",
			k.Rank, k.DP, k.PP, k.TP, k.Rule)
	}
	return err
}
