package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/mitigate/microbatch"
	"github.com/failslow/falcon/tui/clean"
)

// planInputMax bounds what is read: a problem of a million replicas fits.
const planInputMax = 64 << 20

// planCommand is the production planner on files.
func planCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "plan",
		Short:   "Run the production planner on files (JSON in, JSON out)",
		Example: "  falcon plan microbatch problem.json",
		Annotations: map[string]string{
			goneNote(
				"checkpoint",
			): "least time is lost at an interval of the root of 2 * period * time to save / failures; " +
				"docs/recovery.md has the model",
			goneNote(
				"replace",
			): "give mitigate.run_iterations, and the ladder of a running job weighs a drop and a replacement " +
				"by what is left of the run",
			goneNote("volumes"): "appendix 9.2 of the FALCON paper has the formulas",
		},
	}
	c.AddCommand(planMicrobatchCommand(), planTopologyCommand(), planLadderCommand(), planRecoveryCommand())
	return c
}

// problemCommand is a command that reads one JSON problem and writes one JSON plan. A
// problem that can't be one is wrong use; one that has no solution is not.
func problemCommand[P any](use, short, example string, solve func(*P) (any, error)) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   short,
		Example: example,
		Args:    oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			in, err := openInput(c, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			out, err := solveOne(in, solve)
			switch {
			case errors.Is(err, microbatch.ErrInfeasible):
				return fileError(args[0], err)
			case err != nil:
				return fmt.Errorf("%w: %w", errUsage, fileError(args[0], err))
			}
			if err := json.NewEncoder(c.OutOrStdout()).Encode(out); err != nil {
				return fmt.Errorf("can't write the result: %w", err)
			}
			return nil
		},
	}
}

// solveOne decodes a problem and solves it.
func solveOne[P any](r io.Reader, solve func(*P) (any, error)) (any, error) {
	in := new(P)
	if err := decodeOne(r, in); err != nil {
		return nil, err
	}
	return solve(in)
}

func planMicrobatchCommand() *cobra.Command {
	return problemCommand(
		"microbatch FILE",
		"Split a batch over replicas of different speed (S2); - reads standard input",
		`  echo '{"micro_batch_ms":[1,1,2,1],"total":32,"stages":1}' | falcon plan microbatch -
  {"micro_batches":[9,9,5,9],"iteration_ms":10,"even_iteration_ms":16,"optimal":true}`,
		planMicrobatch,
	)
}

// microbatchProblem is the input.
type microbatchProblem struct {
	MicroBatchMs []float64 `json:"micro_batch_ms"`
	Total        *int      `json:"total" need:"give the number of micro-batches in a global batch"`
	Stages       *int      `json:"stages"` // default 1
	FillMs       []float64 `json:"fill_ms"`
	Min          []int     `json:"min"`
	Max          []int     `json:"max"`
	MultipleOf   []int     `json:"multiple_of"`
}

type microbatchPlan struct {
	MicroBatches    []int   `json:"micro_batches"`
	IterationMs     float64 `json:"iteration_ms"`
	EvenIterationMs float64 `json:"even_iteration_ms"`
	Optimal         bool    `json:"optimal"` // the solver is exact: true
}

func planMicrobatch(in *microbatchProblem) (any, error) {
	stages := 1
	if in.Stages != nil {
		stages = *in.Stages
	}
	s, err := microbatch.Solve(microbatch.Problem{
		MicroBatchMs: in.MicroBatchMs,
		Total:        *in.Total,
		Stages:       stages,
		FillMs:       in.FillMs,
		Min:          in.Min,
		Max:          in.Max,
		MultipleOf:   in.MultipleOf,
	})
	if err != nil {
		return nil, &inputError{
			text:  strings.TrimPrefix(err.Error(), "microbatch: "),
			cause: err,
		}
	}
	return microbatchPlan{s.MicroBatches, s.IterationMs, s.EvenIterationMs, true}, nil
}

// decodeOne reads exactly one JSON object, strictly. A field of v that has a tag
// "need" must be there; the tag is what to give.
func decodeOne(r io.Reader, v any) error {
	limited := &io.LimitedReader{R: r, N: planInputMax + 1}
	dec := json.NewDecoder(limited)
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); errors.Is(more, io.EOF) {
			return missingField(v)
		}
		return errors.New("more follows after the JSON object; give exactly one")
	}
	var kind *json.UnmarshalTypeError
	switch {
	case limited.N <= 0:
		return fmt.Errorf("the input is over the limit of %d bytes", planInputMax)
	case errors.Is(err, io.EOF):
		return errors.New("the input is empty; give one JSON object")
	case errors.As(err, &kind):
		return fmt.Errorf("%s can't be a %s; see --help for an example", kind.Field, kind.Value)
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return fmt.Errorf("there is no field %s; see --help for an example",
			clean.String(strings.TrimPrefix(err.Error(), "json: unknown field ")))
	}
	return fmt.Errorf("this is no JSON object: %s",
		clean.String(strings.TrimPrefix(err.Error(), "json: ")))
}

func missingField(v any) error {
	problem := reflect.ValueOf(v).Elem()
	for i := range problem.NumField() {
		field := problem.Type().Field(i)
		need := field.Tag.Get("need")
		if need != "" && problem.Field(i).IsZero() {
			return fmt.Errorf("%s is missing: %s", field.Tag.Get("json"), need)
		}
	}
	return nil
}
