package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/detect/bocd"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/judge"
	"github.com/failslow/falcon/detect/trace/logs"
)

const detectHelp = `Run the production detector on a file of any kind.

The kind of FILE is detected and printed first:

  iterations   iteration times in a training log, a table or an event file
  calls        communication calls
  workers      times of several workers or ranks
  profile      one profile window
  trace        Chrome or Kineto traces, flight-recorder dumps, or a DIR of them
  collectives  NCCL Inspector's JSON or metrics
  counters     dcgm-exporter's metrics or dcgmi dmon's table

The command of the same name below has more flags and documents its report. The
last two kinds have no command: they give no verdict, and a summary is printed.
- is standard input.

--json prints the report in
  {"file":"run.log","kind":"iterations","format":"Megatron log","why":"…","report":{…}}`

// detectCommand runs the production detector on files.
func detectCommand() *cobra.Command {
	var f seriesFlags
	c := documentCommand(&cobra.Command{
		Use:     "detect [FILE|DIR]",
		Short:   "Run the production detector on files",
		Long:    detectHelp,
		Example: "  falcon detect run.log\n  falcon detect iterations run.csv --column iter_time --unit s",
		Args:    anyFile,
	}, f.detectAny, printAny)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return run(c, args)
	}
	f.register(c)
	c.AddCommand(detectIterationsCommand(), detectCallsCommand(), detectWorkersCommand(), detectProfileCommand(), detectTraceCommand())
	return c
}

// anyFile accepts one file. A word that is neither a command nor a file is a usage error.
func anyFile(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%w: give one FILE, or - for standard input (see %s --help)", errUsage, c.CommandPath())
	}
	if len(args) == 0 || strings.ContainsAny(args[0], "./-") {
		return nil
	}
	if _, err := os.Stat(args[0]); os.IsNotExist(err) {
		return fmt.Errorf("%w: %s has no command %q, and there is no such file; see %s --help", errUsage, c.CommandPath(), args[0], c.CommandPath())
	}
	return nil
}

// anyReport is the document of falcon detect FILE.
type anyReport struct {
	File   string    `json:"file"`
	Kind   logs.Kind `json:"kind"`
	Format string    `json:"format"`
	Why    string    `json:"why"`
	Report any       `json:"report"`
}

func (f *seriesFlags) detectAny(c *cobra.Command, args []string) (anyReport, error) {
	path := args[0]
	want, err := f.want(false)
	if err != nil {
		return anyReport{}, err
	}
	if info, err := os.Stat(path); path != "-" && err == nil && info.IsDir() {
		if err := refuseEvents(path); err != nil {
			return anyReport{}, err
		}
		report, err := detectTrace(c, path, trace.Shape{}, defaultRules())
		return anyReport{path, logs.Trace, "a folder", "its files are read as one job", report}, err
	}
	in, err := openInput(c, path)
	if err != nil {
		return anyReport{}, err
	}
	defer in.Close()
	guess, unpacked, err := logs.SniffReader(in)
	if err == nil {
		err = guess.Err()
	}
	if err != nil {
		return anyReport{}, fileError(path, err)
	}
	if *f != (seriesFlags{}) { // these flags imply iteration times
		switch guess.Kind {
		case logs.Iterations:
		case logs.Workers:
			guess.Kind = logs.Iterations
		default:
			return anyReport{}, fmt.Errorf("%w: --column, --unit, --tokens and --run are for iteration times, and %s is %s", errUsage, path, guess.Format)
		}
	}
	out := anyReport{File: path, Kind: guess.Kind, Format: guess.Format, Why: guess.Why}
	out.Report, err = detectKind(c, guess.Kind, path, unpacked, want)
	return out, err
}

// refuseEvents refuses a folder of TensorBoard event files.
func refuseEvents(dir string) error {
	events, err := filepath.Glob(filepath.Join(dir, "*tfevents*"))
	if err != nil || len(events) == 0 {
		return nil
	}
	return fmt.Errorf("the folder %q has TensorBoard event files; give one of them, such as %s", dir, filepath.Base(events[0]))
}

func defaultRules() peer.Rules { return peer.Rules{}.WithDefaults() }

// detectKind runs the command for a kind of file.
func detectKind(c *cobra.Command, kind logs.Kind, path string, in io.Reader, want logs.Want) (any, error) {
	switch kind {
	case logs.Iterations:
		series, err := logs.Read(in, want)
		if err != nil {
			return nil, fileError(path, err)
		}
		return trackSeries(bocd.NewTracker(bocd.DefaultTrackerConfig()), series, nil)
	case logs.Collectives:
		set, err := logs.ReadCollectives(in)
		return set, wrapFile(path, err)
	case logs.Counters:
		set, err := logs.ReadCounters(in)
		return set, wrapFile(path, err)
	case logs.Workers:
		report, err := detectWorkers(in, "", "")
		return report, wrapFile(path, err)
	case logs.Profile:
		profile, err := trace.ReadProfile(in)
		if err != nil {
			return nil, fileError(path, err)
		}
		report, err := judge.Profile(profile, defaultRules())
		return report, wrapFile(path, err)
	}
	c.SetIn(in)
	if kind == logs.Calls {
		report, err := detectCalls(c, []string{"-"})
		return report, nameFile(path, err)
	}
	return detectTrace(c, path, trace.Shape{}, defaultRules()) // the rank may be in the file name
}

func wrapFile(path string, err error) error {
	if err == nil {
		return nil
	}
	return fileError(path, err)
}

// nameFile replaces "standard input" with the file name in an error.
func nameFile(path string, err error) error {
	var e *inputError
	if errors.As(err, &e) {
		return &inputError{text: path + ": " + strings.TrimPrefix(e.text, "standard input: "), cause: e.cause}
	}
	return err
}

func printAny(w io.Writer, r anyReport) error {
	if report, ok := r.Report.(iterationsReport); ok { // it starts with the format
		fmt.Fprintf(w, "%s: ", r.File)
		return printIterations(w, report)
	}
	fmt.Fprintf(w, "%s: %s (%s)\n", r.File, r.Format, r.Why)
	switch report := r.Report.(type) {
	case callsReport:
		return printCalls(w, report)
	case workersReport:
		return printWorkers(w, report)
	case judge.ProfileReport:
		return printProfile(w, report)
	case judge.TraceReport:
		return printTrace(w, report)
	case logs.CollectiveSet:
		return printCollectives(w, report)
	case logs.CounterSet:
		return printCounters(w, report)
	}
	return nil
}
