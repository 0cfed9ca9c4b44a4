package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/period"
	"github.com/failslow/falcon/detect/trace"
)

const detectCallsHelp = `Find the iteration period in a sequence of communication calls.

FILE is a CSV in call order, with the columns t_us (microseconds) and op, and
optionally group and bytes. - is standard input. The period is the
smallest lag at which calls repeat, averaged over kinds of call, so that it is
an iteration and not a micro-batch. Calls of a single kind are compared by the
times between them.

  t_us,op,group,bytes
  0,all_gather,dp0,1048576
  812,send,pp0,65536

--json prints the period, or null with a reason:
  {"calls":3036,"period":69,"acf":1,"by":"classes","anchor":"all_gather","iterations_ms":[46632.6,…]}
  {"calls":12,"period":null,"acf":0,"reason":"…","iterations_ms":[]}`

func detectCallsCommand() *cobra.Command {
	return documentCommand(&cobra.Command{
		Use:     "calls FILE",
		Short:   "Find the iteration period in a log of communication calls",
		Long:    detectCallsHelp,
		Example: "  falcon detect calls rank0.csv --json",
		Args:    oneFile,
	}, detectCalls, printCalls)
}

// callsReport is the document of falcon detect calls.
type callsReport struct {
	Calls        int       `json:"calls"`
	Period       *int      `json:"period"`
	ACF          float64   `json:"acf"`
	Reason       string    `json:"reason,omitempty"`
	By           string    `json:"by,omitempty"` // "classes" or "times"
	Anchor       string    `json:"anchor,omitempty"`
	IterationsMs []float64 `json:"iterations_ms"`
}

func detectCalls(c *cobra.Command, args []string) (callsReport, error) {
	log, err := readInput(c, args[0], trace.Calls)
	if err != nil {
		return callsReport{}, err
	}
	report := callsReport{Calls: len(log.Calls), IterationsMs: []float64{}}
	result, err := period.Config{Op: log.Op}.Infer(log.Calls)
	if errors.Is(err, period.ErrNone) {
		report.Reason = strings.TrimPrefix(err.Error(), period.ErrNone.Error()+": ")
		return report, nil
	}
	if err != nil {
		return report, err
	}
	report.addResult(result, log)
	return report, nil
}

func (r *callsReport) addResult(result period.Result, log trace.CallLog) {
	r.Period = &result.Period
	r.ACF = result.Agreement
	r.IterationsMs = append(r.IterationsMs, result.IterationsMs(log.Calls)...)
	r.By = "classes"
	if result.ByTime {
		r.By = "times"
	}
	if op := int(result.Anchor.Class.Op); op < len(log.Ops) {
		r.Anchor = log.Ops[op]
	}
}

func printCalls(w io.Writer, r callsReport) error {
	if r.Period == nil {
		_, err := fmt.Fprintf(w, "%d calls, no period: %s\n", r.Calls, r.Reason)
		return err
	}
	_, err := fmt.Fprintf(w, "%d calls, %d an iteration (agreement %.3f by %s), anchored at %q\n",
		r.Calls, *r.Period, r.ACF, r.By, r.Anchor)
	for i, ms := range r.IterationsMs {
		if err != nil {
			break
		}
		_, err = fmt.Fprintf(w, "iteration %d: %s\n", i, falcon.DurationText(ms))
	}
	return err
}
