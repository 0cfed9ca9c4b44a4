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
unpacked. It finds out what the file is:

  logs of Megatron-LM, Megatron-DeepSpeed, GPT-NeoX, DeepSpeed, NeMo, torchtitan,
  nanotron, MaxText, verl, nanoGPT, llm.c, nanochat, and progress bars of Hugging
  Face's trainer and Lightning; MLPerf's :::MLLOG; DLLogger; JSON lines; CSV;
  W&B's CSV or JSON history; TensorBoard event files

and says which column it took, in which unit, and why. A column must say by its
name that it is the time of an iteration (iter_time_ms, train/step_time, s/it) or
a duration (ms, seconds). Where several can be meant, or the unit is not known,
it asks for --column or --unit. Where there is none, times are taken from
iterations per second, from tokens per second with --tokens, or from the
differences of a clock beside the iteration's number.

Lines of several ranks about one iteration are one iteration, of which the
slowest counts. A resumed run is read as it ran; of several runs in one file
--run names one. Iterations are told by their own numbers where the file has
them, else by the row, from 0.

  step,iter_time_ms,loss
  10,235.4,2.31
  11,236.0,2.30

A change is reported when the probability of a run length of at most 5 exceeds
the threshold and the medians on both sides differ by the verify share over at
least 3 points each; bursts must last longer to count, the longer the smaller
they are. Alarms that fail this are jitters. With --verification adaptive smaller
changes, from --floor on, are reported as well where the series' own noise proves
them, and changes up to 18 % must be more than that noise. The series is standardised by a
robust scale from its first 10 points, and run lengths less probable than 1e-4
are merged into their neighbours, at most 48 being kept; --raw turns both off,
and takes numbers that are no times.

--json writes the changes and what was no change; index counts rows from 0,
iteration is the file's own number where it has one:
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
	fl.Float64Var(&f.hazard, "hazard", bocd.DefaultRunLength, "expected run length N in iterations; the hazard is 1/N")
	fl.Float64Var(&f.threshold, "threshold", bocd.DefaultThreshold, "probability of a recent change that raises an alarm")
	fl.Float64Var(&f.verify, "verify", 0.10, "least |after - before| / min(before, after) of a change")
	fl.StringVar(&f.how, "verification", bocd.VerifyPaper, "by the verify share (paper), or by the series' own noise as well (adaptive)")
	fl.Float64Var(&f.floor, "floor", shift.DefaultFloor, "least change that is worth telling, with --verification adaptive")
	fl.StringVar(&f.posterior, "posterior", "", "write t,run_length,probability after each observation to this file")
	fl.BoolVar(&f.raw, "raw", false, "feed the numbers as they are, without scaling and pruning")
	fl.StringVar(&f.prior, "prior", "0,1,1,1", "Normal-Gamma prior MU,KAPPA,ALPHA,BETA, with --raw")
	return c
}

// trackerConfig checks the flags.
func (f iterationsFlags) trackerConfig(priorGiven bool) (bocd.TrackerConfig, error) {
	cfg := bocd.DefaultTrackerConfig()
	cfg.Verify, cfg.Raw = f.verify, f.raw
	cfg.Verification, cfg.Floor = f.how, f.floor
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
	if f.how != bocd.VerifyPaper && f.how != bocd.VerifyAdaptive {
		return cfg, fmt.Errorf("%w: --verification %q must be %s or %s", errUsage, f.how, bocd.VerifyPaper, bocd.VerifyAdaptive)
	}
	if !(f.floor >= 0.001 && f.floor <= 1) {
		return cfg, fmt.Errorf("%w: --floor %g must be a share from 0.001 to 1, such as 0.02", errUsage, f.floor)
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
	want, err := f.series.want(f.raw)
	if err != nil {
		return report, err
	}
	series, err := readInput(c, args[0], func(r io.Reader) (logs.Series, error) { return logs.Read(r, want) })
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

// seriesFlags say what a file of iteration times does not.
type seriesFlags struct {
	column, unit string
	tokens       float64
	run          int
}

func (f *seriesFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.column, "column", "", "column, tag or key that holds the times (default the one whose name says so)")
	c.Flags().StringVar(&f.unit, "unit", "", "unit of its numbers: ms, s, us, ns or min (default what the file says)")
	c.Flags().Float64Var(&f.tokens, "tokens", 0, "tokens of an iteration, where the file has tokens per second only; or samples, where it has those")
	c.Flags().IntVar(&f.run, "run", 0, "which run, from 1, of a file that holds several")
}

// want checks the flags.
func (f seriesFlags) want(raw bool) (logs.Want, error) {
	want := logs.Want{Column: f.column, Items: f.tokens, Run: f.run, Raw: raw}
	if f.unit != "" {
		unit, ok := column.ParseUnit(f.unit)
		if !ok {
			return want, fmt.Errorf("%w: --unit %s is no unit of time; give ms, s, us, ns or min", errUsage, f.unit)
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
