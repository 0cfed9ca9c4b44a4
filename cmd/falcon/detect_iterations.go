package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/shift"
	"github.com/failslow/falcon/detect/trace/column"
	"github.com/failslow/falcon/detect/trace/logs"
)

const detectIterationsHelp = `Find where iteration times change their level.

FILE is a training log, a table or an event file; - is standard input, .gz is
decompressed. These formats are detected:

  logs of Megatron-LM, Megatron-DeepSpeed, GPT-NeoX, DeepSpeed, NeMo, torchtitan,
  nanotron, MaxText, verl, nanoGPT, llm.c, nanochat, and progress bars of Hugging
  Face's trainer and Lightning; MLPerf's :::MLLOG; DLLogger; JSON lines; CSV;
  W&B's CSV or JSON history; TensorBoard event files

The output names the column and unit that are used, with the reason. A column is
used if its name identifies an iteration time (iter_time_ms, train/step_time,
s/it) or a duration (ms, seconds). If several columns match or the unit is
unknown, --column or --unit is required. If no column matches, times are computed
from iterations per second, from tokens per second with --tokens, or from the
differences of a timestamp column next to an iteration number.

Lines of several ranks for one iteration are merged; the slowest counts. A
resumed run is read in the order of the file. If a file has several runs, --run
selects one. Iterations are identified by their number in the file, or by the row
from 0.

  step,iter_time_ms,loss
  10,235.4,2.31
  11,236.0,2.30

A change is reported if the probability of a run length of at most 5 exceeds the
threshold and the medians of at least 3 points on both sides differ by the verify
share; smaller changes from --floor on, and all up to 18 %, if they exceed the
noise of the series. With --verification paper the share alone counts. The smaller
a change, the longer it must last. Other alarms are listed as jitters. The series
is standardised by a robust scale from its first 10 points, and run lengths that
predict alike are merged, so that at most 256 are kept. --raw disables both and
accepts numbers that are not times.

--json prints changes and jitters; index counts rows from 0, iteration is the
number in the file if it has one:
  {"points":260,"format":"CSV","column":"ms","unit":"ms","why":"…","notes":[],
   "baseline_ms":210.1,"level_ms":210.3,
   "changes":[{"index":40,"iteration":41,"kind":"onset","before_ms":210,"after_ms":400,
     "change":0.9,"probability":0.98,"detected_at":43}],
   "jitters":[{"index":12,"iteration":13,"probability":0.95,"change":0.02,"detected_at":14}]}`

// iterationsFlags are the flags of falcon detect iterations.
type iterationsFlags struct {
	series    seriesFlags
	hazard    float64
	threshold float64
	verify    float64
	how       string
	floor     float64
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
		Example: "  falcon detect iterations run.log\n  falcon detect iterations run.csv --column iter_time --unit s --json",
		Args:    oneFile,
	}, f.detectIterations, printIterations)
	fl := c.Flags()
	f.series.register(c)
	fl.Float64Var(&f.hazard, "hazard", bocd.DefaultRunLength,
		"expected run length N in iterations; the hazard is 1/N")
	fl.Float64Var(&f.threshold, "threshold", bocd.DefaultThreshold,
		"probability of a recent change that raises an alarm")
	fl.Float64Var(&f.verify, "verify", 0.10, "smallest |after - before| / min(before, after) of a change")
	fl.StringVar(&f.how, "verification", bocd.VerifyAdaptive,
		"verify by the noise of the series (adaptive), or by the share alone (paper)")
	fl.Float64Var(&f.floor, "floor", shift.DefaultFloor,
		"smallest change to report, with --verification adaptive")
	fl.StringVar(&f.posterior, "posterior", "",
		"write t,run_length,probability after each observation to this file")
	fl.BoolVar(&f.raw, "raw", false, "use the numbers without scaling and pruning")
	fl.StringVar(&f.prior, "prior", "0,1,1,1", "Normal-Gamma prior MU,KAPPA,ALPHA,BETA, with --raw")
	return c
}

// trackerConfig checks the flags.
func (f iterationsFlags) trackerConfig(priorGiven bool) (bocd.TrackerConfig, error) {
	cfg := bocd.DefaultTrackerConfig()
	cfg.Verify, cfg.Raw = f.verify, f.raw
	cfg.Verification, cfg.Floor = f.how, f.floor
	cfg.Filter.RunLength = f.hazard
	cfg.Filter.Threshold = f.threshold
	if !(f.hazard >= 1) {
		return cfg, fmt.Errorf("%w: --hazard %g must be at least 1, the expected run length in iterations",
			errUsage, f.hazard)
	}
	if !(f.threshold > 0 && f.threshold < 1) {
		return cfg, fmt.Errorf("%w: --threshold %g must lie between 0 and 1", errUsage, f.threshold)
	}
	if !(f.verify > 0 && f.verify <= 100) {
		return cfg, fmt.Errorf("%w: --verify %g must be a positive share, such as 0.10", errUsage, f.verify)
	}
	if f.how != bocd.VerifyPaper && f.how != bocd.VerifyAdaptive {
		return cfg, fmt.Errorf("%w: --verification %q must be %s or %s",
			errUsage, f.how, bocd.VerifyPaper, bocd.VerifyAdaptive)
	}
	if !(f.floor >= 0.001 && f.floor <= 1) {
		return cfg, fmt.Errorf("%w: --floor %g must be a share from 0.001 to 1, such as 0.02",
			errUsage, f.floor)
	}
	if priorGiven && !f.raw {
		return cfg, fmt.Errorf("%w: --prior requires --raw; a scaled series has a fixed prior", errUsage)
	}
	if f.raw {
		prior, err := parsePrior(f.prior)
		if err != nil {
			return cfg, err
		}
		cfg.Filter.Prior, cfg.Filter.Prune = prior, 0
	}
	if err := cfg.Filter.Validate(); err != nil {
		return cfg, fmt.Errorf("%w: %s",
			errUsage, strings.TrimPrefix(err.Error(), bocd.ErrConfig.Error()+": "))
	}
	return cfg, nil
}

func parsePrior(s string) (bocd.Prior, error) {
	parts := strings.Split(s, ",")
	var v [4]float64
	for i, p := range parts {
		x, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || len(parts) != len(v) {
			return bocd.Prior{}, fmt.Errorf("%w: --prior %q must be four numbers MU,KAPPA,ALPHA,BETA",
				errUsage, s)
		}
		v[i] = x
	}
	return bocd.Prior{Mu: v[0], Kappa: v[1], Alpha: v[2], Beta: v[3]}, nil
}

func (f *iterationsFlags) detectIterations(
	c *cobra.Command,
	args []string,
) (report iterationsReport, err error) {
	cfg, err := f.trackerConfig(c.Flags().Changed("prior"))
	if err != nil {
		return report, err
	}
	want, err := f.series.want(f.raw)
	if err != nil {
		return report, err
	}
	series, err := readInput(c, args[0], func(r io.Reader) (logs.Series, error) {
		return logs.Read(r, want)
	})
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

// seriesFlags add information that a file of iteration times lacks.
type seriesFlags struct {
	column, unit string
	tokens       float64
	run          int
}

func (f *seriesFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.column, "column", "",
		"column, tag or key with the times (default: chosen by name)")
	c.Flags().StringVar(&f.unit, "unit", "",
		"unit of the times: ms, s, us, ns or min (default: from the file)")
	c.Flags().Float64Var(&f.tokens, "tokens", 0,
		"tokens (or samples) per iteration, for files with only tokens (or samples) per second")
	c.Flags().IntVar(&f.run, "run", 0, "number of the run, from 1, for files with several runs")
}

// want checks the flags.
func (f seriesFlags) want(raw bool) (logs.Want, error) {
	want := logs.Want{
		Column: f.column,
		Items:  f.tokens,
		Run:    f.run,
		Raw:    raw,
	}
	if f.unit != "" {
		unit, ok := column.ParseUnit(f.unit)
		if !ok {
			return want, fmt.Errorf("%w: --unit %s is not a unit of time; use ms, s, us, ns or min",
				errUsage, f.unit)
		}
		want.Unit = unit
	}
	if !(f.tokens >= 0) || math.IsInf(f.tokens, 0) {
		return want, fmt.Errorf("%w: --tokens %g must be positive, such as 8192", errUsage, f.tokens)
	}
	if f.run < 0 {
		return want, fmt.Errorf("%w: --run %d must be at least 1", errUsage, f.run)
	}
	return want, nil
}

// trackSeries runs the production tracker over a series.
func trackSeries(tr *bocd.Tracker, series logs.Series, posterior *posteriorFile) (iterationsReport, error) {
	report := newIterationsReport(series)
	for i, ms := range series.Ms {
		changes, err := tr.Observe(ms)
		if err != nil {
			return report, fmt.Errorf("row %d: %w", i, err)
		}
		for _, change := range changes {
			report.addChange(change, series.Steps)
		}
		if err := posterior.writeRow(i, tr); err != nil {
			return report, err
		}
	}
	report.Points = tr.Seen()
	report.BaselineMs, report.LevelMs = tr.BaselineMs(), tr.LevelMs()
	return report, nil
}

// posteriorFile writes rows of t,run_length,probability; nil writes none.
type posteriorFile struct {
	file *os.File
	buf  *bufio.Writer
}

const posteriorLeast = 1e-12 // smaller entries are omitted

func openPosterior(path string) (*posteriorFile, error) {
	if path == "" {
		return nil, nil
	}
	if err := refuseExisting("--posterior", path); err != nil {
		return nil, err
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
