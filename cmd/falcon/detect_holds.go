package main

import (
	"fmt"
	"io"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/trace/logs"
)

const rowsShown = 32 // of a file; --json has all

// printCollectives prints an export of NCCL Inspector.
func printCollectives(w io.Writer, s logs.CollectiveSet) error {
	fmt.Fprintf(w, "%d calls of %d kinds\n", s.Calls, len(s.Kinds))
	for _, r := range s.Remarks {
		fmt.Fprintf(w, "  %s\n", r)
	}
	for i, k := range s.Kinds {
		if i == rowsShown {
			fmt.Fprintf(w, "… and %d more kinds; --json has all\n", len(s.Kinds)-rowsShown)
			break
		}
		fmt.Fprintf(w, "%s of %s bytes on %s (%d ranks): %d calls, median %s, longest %s, %.4g GB/s\n",
			k.Op, k.Size, k.Comm, k.Ranks, k.Calls, falcon.DurationText(k.Us/1000), falcon.DurationText(k.Most/1000), k.GBs)
		if n := len(k.By); n > 1 {
			fmt.Fprintf(w, "  shortest on rank %s (%s), longest on rank %s (%s): members end together, so the shortest call started last\n",
				k.By[0].Rank, falcon.DurationText(k.By[0].Us/1000), k.By[n-1].Rank, falcon.DurationText(k.By[n-1].Us/1000))
		}
	}
	_, err := fmt.Fprintln(w, "this file alone gives no verdict: use iteration times, or a trace per rank")
	return err
}

// printCounters prints a DCGM export.
func printCounters(w io.Writer, s logs.CounterSet) error {
	fmt.Fprintf(w, "%d counters of %d devices\n", len(s.Counters), s.Devices)
	for _, r := range s.Remarks {
		fmt.Fprintf(w, "  %s\n", r)
	}
	for i, k := range s.Counters {
		if i == rowsShown {
			fmt.Fprintf(w, "… and %d more counters; --json has all\n", len(s.Counters)-rowsShown)
			break
		}
		fmt.Fprintf(w, "%-24s %-30s last %10.6g  mean %10.6g  from %.6g to %.6g in %d samples\n", k.Device, k.Name, k.Last, k.Mean, k.Min, k.Max, k.Count)
	}
	_, err := fmt.Fprintln(w, "counters alone give no verdict: they show why a device is slow, iteration times show whether one is")
	return err
}
