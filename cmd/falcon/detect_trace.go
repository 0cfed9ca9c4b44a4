package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/judge"
	"github.com/failslow/falcon/tui/report"
)

const detectTraceHelp = `Give a verdict on recorded traces.

FILE is a Chrome or Kineto trace with one lane per (DP, PP) worker; DIR has one
trace per rank, or one flight-recorder dump per rank, JSON or pickle, plain or
.gz. Other files in a folder are ignored.

Traces: spans (ph "X", or "B" and "E") named forward… and backward…, or Kineto's
kernels, are computation; ncclDevKernel…, recv, all-reduce and similar names are
communication. Workers are identified by args (rank, dp_rank, stage), by
distributedInfo, or by process and thread names ("DP rank 3", "PP rank 1"), else
by the order of pids and tids, which lowers the confidence. Steps are args.step or
ProfilerStep#N. Workers are compared with the same stage in other replicas. Set
--tp, --dp and --pp if the trace has ranks only.

  [{"ph":"X","name":"forward-compute","pid":0,"tid":1,"ts":10,"dur":2500,"args":{"step":7,"dp_rank":0,"stage":1}}]

Dumps: files of PyTorch's flight recorder (a pickle, or dump_nccl_trace_json), one
per rank, with the rank in the name: _dump_0, nccl_trace_rank_3, fr_trace.7.json.
Only plain data is read from pickles; a pickle that imports or calls anything is
refused. In a hang, the ranks that block others without waiting themselves are
named, with the group, the call and any mismatch between members; ranks that wait
in other calls are not named. If the dumps are ambiguous, candidates are listed
and no rank is named. Stacks of a rank in the same folder (stack.3.txt, by py-spy
dump or faulthandler) and the output of ncclras -f json are used as evidence; the
latter can also be used alone. If all calls have ended, durations show which ranks
are waited for: members of a collective end together, so the shortest duration is
the transfer and the rest of each duration is waiting.

--json prints the verdict and the times of each worker:
  {"cause":"unknown","devices":[],"ranks":[0],"links":[],"severity":4,"confidence":0.48,
   "evidence":[{"kind":"timing","text":"rank 0: self time 45.36 s, 2.35 x the median …"}],
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

func detectTrace(
	c *cobra.Command,
	path string,
	shape trace.Shape,
	rules peer.Rules,
) (judge.TraceReport, error) {
	var records trace.Records
	unread, err := readRecords(c, path, &records)
	if err != nil {
		return judge.TraceReport{}, err
	}
	timeline, ok, err := records.Timeline(shape)
	switch dumps := records.Dumps(); {
	case err != nil:
		return judge.TraceReport{}, fileError(path, err)
	case ok && len(dumps) > 0:
		return judge.TraceReport{}, fmt.Errorf(
			"%s: it has both traces and flight-recorder dumps; give one kind",
			path,
		)
	case ok:
		return judge.Timeline(timeline, rules), nil
	case len(dumps) > 0:
		r := judge.DumpsWith(
			dumps,
			judge.Extra{RAS: records.RAS(), Stacks: records.Stacks()},
			rules,
		)
		r.NoteUnread(unread)
		return r, nil
	case records.RAS() != nil:
		return judge.RAS(*records.RAS()), nil
	case len(unread) > 0:
		return judge.TraceReport{}, errors.New(unread[0])
	}
	return judge.TraceReport{}, fmt.Errorf(
		"%s: it has no computation or communication events; record device events, or spans named forward and backward",
		path,
	)
}

// readRecords reads one file, or the records among a folder's files in the order
// of their names. A dump that can't be read is noted, and the others are used.
func readRecords(c *cobra.Command, path string, records *trace.Records) (unread []string, err error) {
	info, err := os.Stat(path)
	if path == "-" || err != nil || !info.IsDir() {
		return nil, readRecord(c, path, records)
	}
	names, err := recordNames(path)
	if err != nil {
		return nil, err
	}
	var first error
	for _, name := range names {
		err := readRecord(c, filepath.Join(path, name), records)
		if err != nil {
			unread = append(unread, err.Error())
			if first == nil || errors.Is(err, trace.ErrTwice) {
				first = err
			}
		}
	}
	if first != nil && (len(records.Dumps()) == 0 || errors.Is(first, trace.ErrTwice)) {
		return nil, first
	}
	return unread, nil
}

// recordNames lists the files of a folder that have the header of a record.
func recordNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("can't read the folder: %w", err)
	}
	var named []string
	others := 0
	for _, e := range entries {
		name := e.Name()
		if !e.Type().IsRegular() && e.Type()&os.ModeSymlink == 0 ||
			strings.HasPrefix(name, ".") {
			continue
		}
		if !looksRecorded(filepath.Join(dir, name)) {
			others++
			continue
		}
		named = append(named, name)
	}
	if len(named) == 0 && others > 0 {
		return nil, fmt.Errorf(
			"none of the %[2]d files in the folder %[1]q is a trace or a dump; give one per rank",
			dir, others,
		)
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("the folder %q has no files; give one trace or dump per rank", dir)
	}
	return named, nil
}

// looksRecorded reports whether a regular file has the header of JSON, a pickle,
// gzip or stacks.
func looksRecorded(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	head, err := readHead(path)
	return err != nil ||
		isStack(path) ||
		trace.LooksRecorded(head) ||
		strings.Contains(filepath.Base(path), ".json")
}

// isStack reports whether a file has a rank's stacks as text.
func isStack(path string) bool {
	head, err := readHead(path)
	return err == nil &&
		!trace.LooksRecorded(head) &&
		strings.Contains(strings.ToLower(filepath.Base(path)), "stack") &&
		trace.LooksLikeStacks(head)
}

// readHead reads the first bytes of a regular file.
func readHead(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	head := make([]byte, 4096)
	n, _ := io.ReadFull(file, head) // a short file is fine
	return head[:n], nil
}

func readRecord(c *cobra.Command, path string, records *trace.Records) error {
	name := filepath.Base(path)
	_, err := readInput(c, path, func(r io.Reader) (struct{}, error) {
		if isStack(path) {
			return struct{}{}, records.AddStacks(name, r)
		}
		return struct{}{}, records.Add(name, r)
	})
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
	printHang(w, r.Hang)
	if r.Hang != nil &&
		!slices.ContainsFunc(r.Workers, func(k judge.WorkerReport) bool { return k.TransferMs > 0 }) {
		return err // a hang without durations
	}
	const shown = 32
	for i, k := range r.Workers {
		if i == shown {
			fmt.Fprintf(w, "… and %d more workers; --json has all\n", len(r.Workers)-shown)
			break
		}
		fmt.Fprintf(w, "%-12s rank %-4d", k.Worker, k.Rank)
		if k.ComputeMs > 0 {
			fmt.Fprintf(w, "  compute %9s (%.2f x peers)", falcon.DurationText(k.ComputeMs), k.Ratio)
		}
		fmt.Fprintf(w, "  transfer %8s  wait %8s",
			falcon.DurationText(k.TransferMs), falcon.DurationText(k.WaitMs))
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

// printHang prints the advice for each cause of a hang.
func printHang(w io.Writer, h *judge.Hang) {
	if h == nil {
		return
	}
	parts := h.Culprits
	word := "next"
	if len(parts) == 0 {
		parts = h.Candidates
		word = "maybe"
	}
	for _, p := range parts {
		fmt.Fprintf(w, "  %-7s ranks %v, %s: %s\n", word, p.Ranks, p.Kind, p.Advice)
	}
}
