package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/report"
)

const historyHelp = `Characterize the incidents that are over, over the engine's jobs and days: root causes
by incident and by job (as table 1 of the FALCON paper), fail-stop faults by kind, durations and slowdowns as
quantiles, what jobs lost, and the GPUs, links and ports that were named, with a score
that decays.

Times are UTC; durations and losses are in seconds, slowdowns shares of the healthy
time. Parts are known by their place (n1.g0, n1-n3, n1.nic0). --json writes
  {"at":"…","half_life_hours":168,"incidents":3,"causes":[{"cause":"gpu_degradation",
   "incidents":2,"share":0.67,"mean_s":61,"lost_s":40}],"fail_stops":[{"kind":"node",
   "faults":1,"ranks":8,"most":"n3","trains":1,"over":1,"down_s":95}],"table":[…],"durations_s":{"n":3,
   "mean":70,"quantiles":[…21…]},"slowdowns":{…},"jobs":[…],"culprits":[{"kind":"gpu",
   "name":"n1.g0","times":2,"score":1.9,"incident":"INC-0003",…}],"past":[…]}`

func historyCommand() *cobra.Command {
	var target engineTarget
	var since, halfLife string
	var limit int32
	c := documentCommand(&cobra.Command{
		Use:     "history",
		Short:   "Characterize past incidents: root causes, durations, slowdowns, recurring culprits",
		Long:    historyHelp,
		Example: "  falcon history --since 7d\n  falcon history --json",
		Args:    takesNothing,
	}, func(c *cobra.Command, _ []string) (report.History, error) {
		q, err := historyRequest(since, halfLife, limit, time.Now())
		if err != nil {
			return report.History{}, err
		}
		r, err := ask(
			c,
			&target,
			func(ctx context.Context, cl falconv1.ConsoleClient) (*falconv1.HistoryReply, error) {
				return cl.History(ctx, q)
			},
		)
		if err != nil {
			return report.History{}, err
		}
		return report.HistoryOf(r), nil
	}, func(w io.Writer, h report.History) error {
		return writeString(w, h.Text())
	})
	target.declareFlags(c)
	c.Flags().StringVar(&since, "since", "",
		"onsets from here on: an age such as 36h or 7d, or a date such as 2026-03-01 (default: all)")
	c.Flags().StringVar(&halfLife, "half-life", "7d", "of the culprits' score, such as 36h or 7d")
	c.Flags().Int32Var(&limit, "limit", 100, "incidents listed, at most 512")
	return c
}

func historyRequest(since, halfLife string, limit int32, now time.Time) (*falconv1.HistoryRequest, error) {
	half, err := parseAge(halfLife)
	if err != nil {
		return nil, fmt.Errorf("%w: --half-life %q is no time such as 36h or 7d", errUsage, halfLife)
	}
	if limit < 1 || limit > 512 {
		return nil, fmt.Errorf("%w: --limit %d is not between 1 and 512", errUsage, limit)
	}
	q := &falconv1.HistoryRequest{HalfLifeNs: int64(half), Limit: limit}
	if since == "" {
		return q, nil
	}
	from, err := time.Parse(time.DateOnly, since)
	if err != nil {
		age, err := parseAge(since)
		if err != nil {
			return nil, fmt.Errorf(
				"%w: --since %q is neither an age such as 36h or 7d nor a date such as 2026-03-01",
				errUsage, since,
			)
		}
		from = now.Add(-age)
	}
	q.SinceUnixNs = max(1, from.UnixNano())
	return q, nil
}

// parseAge reads a positive length of time, also in days, of a century at most.
func parseAge(s string) (time.Duration, error) {
	const most = 100 * 365 * 24 * time.Hour
	var d time.Duration
	if days, found := strings.CutSuffix(s, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n > 0) || n*24 > most.Hours() {
			return 0, fmt.Errorf("%w: %q", errUsage, s)
		}
		return time.Duration(n * 24 * float64(time.Hour)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > most {
		return 0, fmt.Errorf("%w: %q", errUsage, s)
	}
	return d, nil
}
