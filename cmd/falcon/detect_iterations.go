package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/trace"
)

const detectIterationsHelp = `Find where iteration times change their level.

FILE is a CSV whose header names the columns (the last numeric one is taken, in
milliseconds, unless --column names another), or a Megatron or NeMo log with
lines "elapsed time per iteration (ms): …"; - is standard input.

A change is reported when the probability of a run length of at most 5 exceeds
the threshold and the medians on both sides differ by the verify share over at
least 3 points each; bursts must last longer to count, the longer the smaller
they are. Alarms that fail this are jitters. The series is standardised by a
robust scale from its first 10 points, and run lengths less probable than 1e-4
are merged into their neighbours, at most 48 being kept; --raw turns both off.

--json writes the changes and what was no change; indexes count from 0:
  {"points":260,"column":"ms","baseline_ms":210.1,"level_ms":210.3,
   "changes":[{"index":40,"kind":"onset","before_ms":210,"after_ms":400,"change":0.9,
     "probability":0.98,"detected_at":43}],
   "jitters":[{"index":12,"probability":0.95,"change":0.02,"detected_at":14}]}`

// iterationsFlags are the flags of falcon detect iterations.
type iterationsFlags struct {
	column    string
	hazard    float64
	threshold float64
	verify    float64
	posterior string
	raw       bool
	prior     string
}

func detectIterationsCommand() *cobra.Command {
	var f iterationsFlags
	c := documentCommand(&cobra.Command{
		Use:     "iterations FILE",
		Short:   "Find onsets and reliefs in a series of iteration times",
		Long:    detectIterationsHelp,
		Example: "  falcon detect iterations run.csv --column ms --json",
		Args:    oneFile,
	}, f.detectIterations, printIterations)
	fl := c.Flags()
	fl.StringVar(&f.column, "column", "", "CSV column that holds the milliseconds (default the last numeric one)")
	fl.Float64Var(&f.hazard, "hazard", bocd.DefaultRunLength, "expected run length N in iterations; the hazard is 1/N")
	fl.Float64Var(&f.threshold, "threshold", bocd.DefaultThreshold, "probability of a recent change that raises an alarm")
	fl.Float64Var(&f.verify, "verify", 0.10, "least |after - before| / min(before, after) of a change")
	fl.StringVar(&f.posterior, "posterior", "", "write t,run_length,probability after each observation to this file")
	fl.BoolVar(&f.raw, "raw", false, "feed the numbers as they are, without scaling and pruning")
	fl.StringVar(&f.prior, "prior", "0,1,1,1", "Normal-Gamma prior MU,KAPPA,ALPHA,BETA, with --raw")
	return c
}

// trackerConfig checks the flags.
func (f iterationsFlags) trackerConfig(priorGiven bool) (bocd.TrackerConfig, error) {
	cfg := bocd.DefaultTrackerConfig()
	cfg.Verify, cfg.Raw = f.verify, f.raw
	cfg.Filter.RunLength, cfg.Filter.Threshold = f.hazard, f.threshold
	if !(f.hazard >= 1) {
		return cfg, fmt.Errorf("%w: --hazard %g must be at least 1, the expected run length in iterations", errUsage, f.hazard)
	}
	if !(f.threshold > 0 && f.threshold < 1) {
		return cfg, fmt.Errorf("%w: --threshold %g must lie between 0 and 1", errUsage, f.threshold)
	}
	if !(f.verify > 0 && f.verify <= 100) {
		return cfg, fmt.Errorf("%w: --verify %g must be a positive share, such as 0.10", errUsage, f.verify)
	}
	if priorGiven && !f.raw {
		return cfg, fmt.Errorf("%w: --prior goes with --raw; the scaled series has a prior of its own", errUsage)
	}
	if f.raw {
		prior, err := parsePrior(f.prior)
		if err != nil {
			return cfg, err
		}
		cfg.Filter.Prior, cfg.Filter.Prune = prior, 0
	}
	if err := cfg.Filter.Validate(); err != nil {
		return cfg, fmt.Errorf("%w: %s", errUsage, strings.TrimPrefix(err.Error(), bocd.ErrConfig.Error()+": "))
	}
	return cfg, nil
}

func parsePrior(s string) (bocd.Prior, error) {
	parts := strings.Split(s, ",")
	var v [4]float64
	for i, p := range parts {
		x, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || len(parts) != len(v) {
			return bocd.Prior{}, fmt.Errorf("%w: --prior %q must be four numbers MU,KAPPA,ALPHA,BETA", errUsage, s)
		}
		v[i] = x
	}
	return bocd.Prior{Mu: v[0], Kappa: v[1], Alpha: v[2], Beta: v[3]}, nil
}

func (f *iterationsFlags) detectIterations(c *cobra.Command, args []string) (report iterationsReport, err error) {
	cfg, err := f.trackerConfig(c.Flags().Changed("prior"))
	if err != nil {
		return report, err
	}
	series, err := readInput(c, args[0], func(r io.Reader) (trace.Series, error) { return trace.Iterations(r, f.column) })
	if err != nil {
		return report, err
	}
	posterior, err := openPosterior(f.posterior)
	if err != nil {
		return report, err
	}
	report, err = trackSeries(bocd.NewTracker(cfg), series, posterior)
	return report, errors.Join(err, posterior.closeFile())
}

// trackSeries runs the production tracker over a series.
func trackSeries(tr *bocd.Tracker, series trace.Series, posterior *posteriorFile) (iterationsReport, error) {
	report := iterationsReport{Column: series.Column, Changes: []changeReport{}, Jitters: []jitterReport{}}
	for i, ms := range series.Ms {
		changes, err := tr.Observe(ms)
		if err != nil {
			return report, fmt.Errorf("iteration %d: %w", i, err)
		}
		for _, change := range changes {
			report.addChange(change)
		}
		if err := posterior.writeRow(i, tr); err != nil {
			return report, err
		}
	}
	report.Points = tr.Seen()
	report.BaselineMs, report.LevelMs = tr.BaselineMs(), tr.LevelMs()
	return report, nil
}

// posteriorFile takes rows t,run_length,probability; nil takes none.
type posteriorFile struct {
	file *os.File
	buf  *bufio.Writer
}

const posteriorLeast = 1e-12 // entries at or below it are left out

func openPosterior(path string) (*posteriorFile, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("can't write the posterior: %w", err)
	}
	p := &posteriorFile{file: file, buf: bufio.NewWriter(file)}
	_, err = io.WriteString(p.buf, "t,run_length,probability\n")
	return p, err
}

func (p *posteriorFile) writeRow(t int, tr *bocd.Tracker) error {
	if p == nil {
		return nil
	}
	var err error
	tr.Runs(func(runLength int, probability float64) bool {
		if probability > posteriorLeast {
			_, err = fmt.Fprintf(p.buf, "%d,%d,%.17g\n", t, runLength, probability)
		}
		return err == nil
	})
	return err
}

func (p *posteriorFile) closeFile() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.buf.Flush(), p.file.Close())
}
