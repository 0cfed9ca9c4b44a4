package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/trace"
)

const detectWorkersHelp = `Find workers that become slower than their own past and their peers.

FILE is a CSV with one row per worker and step, in time order; - is standard
input. A worker that is 1.5 times slower than its peers from the start is flagged
from 0. Smaller constant differences and slowdowns of most workers are ignored.

The worker is read from the column worker or rank. Without either, it is built
from the coordinate columns (dp, pp, tp) that vary, as in dp0/pp0. The value is
the column that is named as a time, or the last numeric column. With coordinates
it is the sum of the columns with "compute" in their names, if there are any,
because workers that wait for each other have equal step times. Both flags accept
several names, separated by commas: worker names are joined, values are added.

  step,dp,pp,fwd_compute_ms,bwd_compute_ms,dp_comm_ms
  0,0,0,17.5,27.3,0.7
  0,1,0,7.0,12.2,0.7

--json prints
  {"column":"step_ms","workers":16,"flagged":[{"worker":"dp0/pp0","onset":0,"relief":null,"ratio":2.35,"kind":"persistent"}]}`

func detectWorkersCommand() *cobra.Command {
	var workerColumn, valueColumn string
	c := documentCommand(&cobra.Command{
		Use:     "workers FILE",
		Short:   "Find slow workers in a table of per-worker times",
		Long:    detectWorkersHelp,
		Example: "  falcon detect workers times.csv --worker-column rank --value-column ms --json",
		Args:    oneFile,
	}, func(c *cobra.Command, args []string) (workersReport, error) {
		return readInput(c, args[0], func(r io.Reader) (workersReport, error) {
			return detectWorkers(r, workerColumn, valueColumn)
		})
	}, printWorkers)
	c.Flags().StringVar(&workerColumn, "worker-column", "",
		"column with the worker (default worker or rank, or the coordinates)")
	c.Flags().StringVar(&valueColumn, "value-column", "",
		"column with the time (default: chosen by name, see above)")
	return c
}

// workersReport is the document of falcon detect workers.
type workersReport struct {
	Column  string       `json:"column"` // of the times
	Workers int          `json:"workers"`
	Flagged []flagReport `json:"flagged"`
}

type flagReport struct {
	Worker string  `json:"worker"`
	Onset  int     `json:"onset"`
	Relief *int    `json:"relief"`
	Ratio  float64 `json:"ratio"`
	Kind   string  `json:"kind"`
}

func detectWorkers(r io.Reader, workerColumn, valueColumn string) (workersReport, error) {
	watch := bocd.NewWorkers(bocd.DefaultTrackerConfig())
	took, err := trace.Workers(r, workerColumn, valueColumn, watch.Observe)
	if err != nil {
		return workersReport{}, err
	}
	report := workersReport{
		Column:  took,
		Workers: watch.Count(),
		Flagged: []flagReport{},
	}
	for _, f := range watch.Flagged() {
		one := flagReport{
			Worker: f.Worker,
			Onset:  f.Onset,
			Ratio:  f.Ratio,
			Kind:   "persistent",
		}
		if f.Relief >= 0 {
			one.Relief = &f.Relief
			one.Kind = "transient"
		}
		report.Flagged = append(report.Flagged, one)
	}
	return report, nil
}

func printWorkers(w io.Writer, r workersReport) error {
	_, err := fmt.Fprintf(w, "%d workers by %s, %d slow periods\n",
		r.Workers, r.Column, len(r.Flagged))
	for _, f := range r.Flagged {
		if err != nil {
			break
		}
		until := "until the end"
		if f.Relief != nil {
			until = fmt.Sprintf("until %d", *f.Relief)
		}
		_, err = fmt.Fprintf(w, "worker %s: %.2f x as slow from %d %s (%s)\n",
			f.Worker, f.Ratio, f.Onset, until, f.Kind)
	}
	return err
}
