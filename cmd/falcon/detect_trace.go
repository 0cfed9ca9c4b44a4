package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/judge"
	"github.com/failslow/falcon/tui/report"
)

const detectTraceHelp = `Give a verdict on recorded traces.

FILE is a Chrome or Kineto trace with one lane per (DP, PP) worker; DIR holds one
trace per rank, or one flight-recorder dump per rank. JSON, plain or .gz; of a
folder the files named *.json and *.json.gz are read, and of dumps all others.

Traces: spans (ph "X", or "B" and "E") named forward… and backward…, or Kineto's
kernels, are computing; ncclDevKernel…, recv, all-reduce and the like are
communication. Who is who is read from args (rank, dp_rank, stage), from
distributedInfo, or from process and thread names ("DP rank 3", "PP rank 1"),
else from the order of pids and tids, which lowers the confidence. Steps are
args.step or ProfilerStep#N. Workers are compared with those of their stage in
other replicas. Give --tp, --dp and --pp where the trace has ranks only.

  [{"ph":"X","name":"forward-compute","pid":0,"tid":1,"ts":10,"dur":2500,"args":{"step":7,"dp_rank":0,"stage":1}}]

Dumps: what PyTorch's flight recorder writes as JSON (dump_nccl_trace_json), one
file per rank named by it. Members of a collective end together: its transfer is
the least duration, a rank's wait is what it took beyond that. A collective that
some members never reached is named with the late ranks, and so is one that
members call differently. Pickles are refused: reading one can run code.

--json writes the verdict, with what each worker did:
  {"cause":"unknown","devices":[],"ranks":[0],"links":[],"severity":4,"confidence":0.48,
   "evidence":[{"kind":"timing","text":"rank 0: self time 45359.2 ms, 2.35 x the median …"}],
   "source":"timeline","layout":{"tp":1,"dp":4,"pp":4},
   "workers":[{"worker":"dp0/pp0","rank":0,"compute_ms":45359.2,"ratio":2.35,"slow":true,…}]}`

func detectTraceCommand() *cobra.Command {
	var rules peer.Rules
	var shape trace.Shape
	c := documentCommand(&cobra.Command{
		Use:     "trace FILE|DIR",
		Short:   "Give a verdict on Chrome or Kineto traces, or on flight-recorder dumps",
		Long:    detectTraceHelp,
		Example: "  falcon detect trace timeline.json.gz --json\n  falcon detect trace dumps/",
		Args:    oneFile,
	}, func(c *cobra.Command, args []string) (judge.TraceReport, error) {
		if err := checkRules(rules); err != nil {
			return judge.TraceReport{}, err
		}
		if shape.TP < 0 || shape.DP < 0 || shape.PP < 0 {
			return judge.TraceReport{}, fmt.Errorf("%w: --tp, --dp and --pp can't be negative", errUsage)
		}
		return detectTrace(c, args[0], shape, rules)
	}, printTrace)
	rulesFlags(c, &rules)
	c.Flags().IntVar(&shape.TP, "tp", 0, "tensor-parallel size (default: from the trace)")
	c.Flags().IntVar(&shape.DP, "dp", 0, "data-parallel size (default: from the trace)")
	c.Flags().IntVar(&shape.PP, "pp", 0, "pipeline stages (default: from the trace)")
	return c
}

func detectTrace(c *cobra.Command, path string, shape trace.Shape, rules peer.Rules) (judge.TraceReport, error) {
	var records trace.Records
	if err := readRecords(c, path, &records); err != nil {
		return judge.TraceReport{}, err
	}
	timeline, ok, err := records.Timeline(shape)
	switch dumps := records.Dumps(); {
	case err != nil:
		return judge.TraceReport{}, fileError(path, err)
	case ok && len(dumps) > 0:
		return judge.TraceReport{}, fmt.Errorf("%s: both traces and flight-recorder dumps are in it; give one kind", path)
	case ok:
		return judge.Timeline(timeline, rules), nil
	case len(dumps) > 0:
		return judge.Dumps(dumps, rules), nil
	}
	return judge.TraceReport{}, fmt.Errorf("%s: no event of computing or communication; record the device, or spans named forward and backward", path)
}

// readRecords reads one file, or the files of a folder in the order of their
// names.
func readRecords(c *cobra.Command, path string, records *trace.Records) error {
	info, err := os.Stat(path)
	if path == "-" || err != nil || !info.IsDir() {
		return readRecord(c, path, records)
	}
	names, err := recordNames(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := readRecord(c, filepath.Join(path, name), records); err != nil {
			return err
		}
	}
	return nil
}

// recordNames are the files of a folder that can be records: all *.json and
// *.json.gz, or where there is none, every file.
func recordNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("can't read the folder: %w", err)
	}
	var all, named []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || strings.HasPrefix(name, ".") {
			continue
		}
		all = append(all, name)
		if strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".json.gz") {
			named = append(named, name)
		}
	}
	if len(named) > 0 {
		return named, nil
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the folder %q holds no files; give one trace or dump per rank", dir)
	}
	return all, nil
}

func readRecord(c *cobra.Command, path string, records *trace.Records) error {
	_, err := readInput(c, path, func(r io.Reader) (struct{}, error) { return struct{}{}, records.Add(filepath.Base(path), r) })
	return err
}

func printTrace(w io.Writer, r judge.TraceReport) error {
	_, err := fmt.Fprintf(w, "verdict: %s, severity %d, confidence %.2f", r.Cause, r.Severity, r.Confidence)
	if len(r.Ranks) > 0 {
		fmt.Fprintf(w, ", ranks %v", r.Ranks)
	}
	fmt.Fprintln(w)
	for _, e := range r.Evidence {
		fmt.Fprintf(w, "  %-7s %s %s\n", report.ForOrAgainst(e.Against), e.Kind, e.Text)
	}
	const shown = 32
	for i, k := range r.Workers {
		if i == shown {
			fmt.Fprintf(w, "… and %d more workers; --json has all\n", len(r.Workers)-shown)
			break
		}
		fmt.Fprintf(w, "%-12s rank %-4d", k.Worker, k.Rank)
		if k.ComputeMs > 0 {
			fmt.Fprintf(w, "  compute %9.4g ms (%.2f x peers)", k.ComputeMs, k.Ratio)
		}
		fmt.Fprintf(w, "  transfer %8.4g ms  wait %8.4g ms", k.TransferMs, k.WaitMs)
		switch {
		case k.Slow:
			fmt.Fprint(w, "  slow")
		case k.Awaited:
			fmt.Fprint(w, "  waited for")
		}
		fmt.Fprintln(w)
	}
	return err
}
