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

durations_ms holds one number per member in the order of ranks, or a list of such
lists, one per call. self_ms holds one number per rank: device time outside
communication. The ranks of a send or recv are the sender and the receiver, and
the receiver's time is judged. "healthy" may hold groups and self_ms of a window
in which nothing was wrong.

starts_ms in the shape of durations_ms, each by its rank's own clock, and
"iterations" let it be seen that communication hides computation (overlap). A
rank's ratio is then at most the one to its own healthy past, or without one what
it comes late by in one collective.

Members of a call end together: its transfer is the least duration, a member's
wait is what it took beyond that. Suspicious are: groups whose transfer is over
1.1 x the median of the others of their class (dimension, op, bytes, within a
node or not), or their own healthy one where the class has fewer than three
others; TP and DP groups in which a member waits over twice the transfer; ranks
whose self time is over 1.1 x the median of the ranks with their stage and TP
coordinate in other replicas.

--json writes the suspicious ones, each with its rule and numbers:
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
	c.Flags().Float64Var(&rules.Suspect, "suspect", usual.Suspect, "ratio over the median of its kind that makes a group or a rank suspicious")
	c.Flags().Float64Var(&rules.WaitOver, "wait-over", usual.WaitOver, "transfers that a wait must exceed to mark computation")
	c.Flags().IntVar(&rules.MinPeers, "min-peers", usual.MinPeers, "peers that make a median; with fewer the own healthy profile decides")
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
		r.Checked.Groups, r.Checked.Pairs, r.Checked.Ranks, len(r.Groups), len(r.Pairs), len(r.Ranks))
	if r.Overlap != nil {
		fmt.Fprintf(w, "overlap seen: gaps between calls are %.0f %% of the time that ranks work\n", 100*r.Overlap.GapShare)
	}
	if r.AllSlow {
		fmt.Fprintln(w, "all ranks slowed alike: not one of them")
	}
	if len(r.SlowStages) > 0 {
		fmt.Fprintf(w, "all ranks of stages %v slowed alike\n", r.SlowStages)
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
		fmt.Fprintf(w, "rank %d (dp %d, stage %d, tp %d): %s\n", k.Rank, k.DP, k.PP, k.TP, k.Rule)
	}
	return err
}
