package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/grpc"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/report"
)

const validateHelp = `Hold the job at an iteration boundary, test GPUs or links, and let it go on.

Training stands still while the tests run: for the hold's life at most
(validation.life in the engine's configuration, 10 s by default, 60 s whatever is
set), after which every rank resumes by itself. No process restarts, and the
pause is kept out of the iteration times. It needs the role approver. On a
terminal the command asks first, unless --yes is given; a script that runs it has
decided. An interrupt ends the validation and lets training go on.

--gemm multiplies matrices on the ranks at once. --links sends messages round the
ranks in a few passes, both ways. What takes over 1.2 x the median of its kind (of
all GPUs; of links within a node, on the same rail, across rails) in every run is
slow; where repeats differ by chance the limit is higher. Where few are named
others are tested to compare with. A link that can't be compared, or takes under
2 ms however many messages are sent, is not judged, unless a test of it in the last
day tells. Without --ranks and --pairs all ranks are tested.

--json writes the validation:
  {"id":"VAL-0001","ask":{"by":"ann","why":"…"},"state":"done","iteration":120,"passes":2,
   "paused_ms":84,"quiet_ms":410,"gemm":[{"rank":1,"device":"n0.g1","ms":12.1,"ratio":1.01,"slow":false,…}],
   "links":[{"from":1,"to":2,"link":"n0-n1","class":"same rail","ms":3.1,"ratio":1,"slow":false,…}],…}
The exit code is 0 where all that was asked for was judged and nothing is slow, 1
where the test was refused or failed, 3 where something is slow, and 4 where nothing
is known to be slow but something could not be judged; a sentence says what.`

// Bounds of following a validation.
const (
	followEvery = 200 * time.Millisecond
	// a hold lasts a minute at most; the rest is finding a boundary and trying again
	followMost = 3 * time.Minute
)

// validateFlags are the flags of falcon validate.
type validateFlags struct {
	ranks  string
	links  bool
	pairs  []string
	yes    bool
	json   bool
	detach bool
}

func validateCommand() *cobra.Command {
	var target engineTarget
	var f validateFlags
	q := &falconv1.ValidateRequest{}
	c := &cobra.Command{
		Use:   "validate",
		Short: "Hold the job for a moment and test GPUs or links",
		Long:  validateHelp,
		Example: `  falcon validate --ranks 1,2 --gemm --reason "n1 looks hot"
  falcon validate --links --pairs n1-n3,n2-n3
  falcon validate --cancel VAL-0001`,
		Args: takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.request(q); err != nil {
				return err
			}
			return validate(c, &target, f, q)
		},
	}
	target.declareFlags(c)
	fl := c.Flags()
	fl.StringVar(&f.ranks, "ranks", "", "ranks to test, such as 1,2 or 0-7 (default all)")
	fl.BoolVar(&q.Gemm, "gemm", false, "test the GPUs by matrix products")
	fl.BoolVar(&f.links, "links", false, "test the links between the ranks")
	fl.StringSliceVar(&f.pairs, "pairs", nil, "test the links between these pairs of nodes, such as n1-n3")
	fl.Int32Var(&q.GemmN, "gemm-n", 0, "side of the matrices (default the engine's)")
	fl.Int64Var(&q.MessageBytes, "message-bytes", 0, "bytes of a message (default the engine's)")
	fl.StringVar(&q.Reason, "reason", "", "why, for the record")
	fl.StringVar(&q.Incident, "incident", "", "the incident that the test is for")
	fl.StringVar(&q.Cancel, "cancel", "", "end this validation now and let training go on, such as VAL-0001")
	fl.BoolVarP(&f.yes, "yes", "y", false, "don't ask on a terminal")
	fl.BoolVar(&f.detach, "detach", false, "don't wait for the end")
	fl.BoolVar(&f.json, "json", false, "write one JSON document")
	return c
}

// request fills in the request and refuses what can't be meant.
func (f *validateFlags) request(q *falconv1.ValidateRequest) error {
	tests := q.Gemm || f.links || len(f.pairs) > 0
	if q.Cancel != "" {
		if tests || f.ranks != "" {
			return fmt.Errorf("%w: --cancel ends a validation: give it alone", errUsage)
		}
		return nil
	}
	switch {
	case !tests:
		return fmt.Errorf("%w: say what to test: --gemm, --links or both", errUsage)
	case q.GemmN < 0 || q.MessageBytes < 0:
		return fmt.Errorf("%w: --gemm-n and --message-bytes can't be negative", errUsage)
	}
	for _, name := range f.pairs {
		l, err := falcon.ParseLink(name)
		if err != nil {
			return fmt.Errorf("%w: --pairs: %s",
				errUsage, strings.TrimPrefix(err.Error(), falcon.ErrName.Error()+": "))
		}
		q.Links = append(q.Links, l.String())
	}
	q.LinkTest = f.links || len(f.pairs) > 0
	var err error
	q.Ranks, err = parseRanks(f.ranks)
	return err
}

const ranksMost = 4096 // that one validation tests

// parseRanks reads 1,2 or 0-7 or both; empty is nil.
func parseRanks(s string) ([]int32, error) {
	if s == "" {
		return nil, nil
	}
	var out []int32
	for _, part := range strings.Split(s, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseInt(first, 10, 32)
		b, errB := strconv.ParseInt(last, 10, 32)
		if errA != nil || errB != nil || a < 0 || b < a {
			return nil, fmt.Errorf("%w: --ranks %q holds %q, which is no rank and no range such as 0-7",
				errUsage, clean.String(s), clean.String(part))
		}
		if int64(len(out))+b-a >= ranksMost {
			return nil, fmt.Errorf("%w: --ranks names over %d ranks; test a group at a time",
				errUsage, ranksMost)
		}
		for r := a; r <= b; r++ {
			out = append(out, int32(r))
		}
	}
	return out, nil
}

// validate asks for a validation and follows it to its end.
func validate(c *cobra.Command, t *engineTarget, f validateFlags, q *falconv1.ValidateRequest) error {
	if q.Cancel == "" && !f.yes {
		if err := confirmHold(c); err != nil {
			return err
		}
	}
	conn, err := t.dialTarget()
	if err != nil {
		return err
	}
	defer conn.Close()
	v, err := requestValidation(c.Context(), conn, q)
	if err != nil {
		return refusal(err, t.engineAddress())
	}
	if !v.State.Over() && !f.detach {
		if v, err = followValidation(c, conn, v); err != nil {
			return refusalOr(err, t.engineAddress())
		}
	}
	return showValidation(c, v, f.json, q.Cancel != "")
}

// confirmHold asks on a terminal. Elsewhere whoever wrote the command has
// decided, and the hold's own deadline bounds what it costs.
func confirmHold(c *cobra.Command) error {
	if c.InOrStdin() != io.Reader(os.Stdin) || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	fmt.Fprint(
		c.ErrOrStderr(),
		"This holds training at its next boundary, for the hold's life at most (10 s by default, never over 60 s). Go on? [y/N] ",
	)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if s := strings.ToLower(strings.TrimSpace(line)); s != "y" && s != "yes" {
		return errors.New("nothing was done")
	}
	return nil
}

func requestValidation(
	ctx context.Context,
	conn *grpc.ClientConn,
	q *falconv1.ValidateRequest,
) (falcon.Validation, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := falconv1.NewConsoleClient(conn).Validate(ctx, q)
	if err != nil {
		return falcon.Validation{}, err
	}
	return report.ValidationOf(r.GetValidation()), nil
}

// errFollow is an error of following, printed unchanged.
var errFollow = errors.New("falcon: following a validation")

func refusalOr(err error, addr string) error {
	if errors.Is(err, errFollow) {
		return errors.New(strings.TrimPrefix(err.Error(), errFollow.Error()+": "))
	}
	return refusal(err, addr)
}

// followValidation waits until a validation is over and prints its progress. An interrupt
// ends it: the operator wants training to go on.
func followValidation(
	c *cobra.Command,
	conn *grpc.ClientConn,
	v falcon.Validation,
) (falcon.Validation, error) {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, followMost)
	defer cancel()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	printed := ""
	for {
		if line := progress(v); line != printed {
			fmt.Fprintln(c.ErrOrStderr(), line)
			printed = line
		}
		if v.State.Over() {
			return v, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return cancelValidation(c, conn, v, ctx.Err())
		}
		next, err := fetchValidation(ctx, conn, v.ID)
		if err != nil && ctx.Err() != nil {
			return cancelValidation(c, conn, v, ctx.Err())
		}
		if err != nil {
			return v, err
		}
		v = next
	}
}

// cancelValidation ends a validation that the operator interrupted.
func cancelValidation(
	c *cobra.Command,
	conn *grpc.ClientConn,
	v falcon.Validation,
	why error,
) (falcon.Validation, error) {
	if errors.Is(why, context.DeadlineExceeded) {
		return v, fmt.Errorf(
			"%w: %s is still %s after %s; look again with: falcon console, or end it with: falcon validate --cancel %s",
			errFollow, v.ID, v.State, followMost, v.ID,
		)
	}
	if _, err := requestValidation(context.WithoutCancel(c.Context()), conn, &falconv1.ValidateRequest{
		Cancel: v.ID,
	}); err != nil {
		return v, fmt.Errorf("%w: interrupted, and %s could not be ended (%s); it resumes by itself",
			errFollow, v.ID, clean.String(err.Error()))
	}
	return v, fmt.Errorf("%w: interrupted: %s was ended and training goes on", errFollow, v.ID)
}

// fetchValidation pulls one validation: from the snapshot, which shows the one in
// progress, else from the record, where a newer one has taken its place.
func fetchValidation(ctx context.Context, conn *grpc.ClientConn, id string) (falcon.Validation, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client := falconv1.NewConsoleClient(conn)
	s, err := client.Snapshot(ctx, &falconv1.SnapshotRequest{Rank: -1, Columns: 1})
	if err != nil {
		return falcon.Validation{}, err
	}
	if v := report.ValidationOf(s.GetValidation()); v.ID == id {
		return v, nil
	}
	r, err := client.Incidents(ctx, &falconv1.IncidentsRequest{})
	if err != nil {
		return falcon.Validation{}, err
	}
	for _, v := range r.GetValidations() {
		if v := report.ValidationOf(v); v.ID == id {
			return v, nil
		}
	}
	return falcon.Validation{}, fmt.Errorf("%w: the engine no longer knows %s; was it restarted?",
		errFollow, id)
}

// showValidation writes the result; a validation that came to nothing is an
// error with its reason.
func showValidation(c *cobra.Command, v falcon.Validation, asJSON, cancelled bool) error {
	var err error
	if asJSON {
		err = writeJSON(c.OutOrStdout(), v)
	} else {
		err = writeValidation(c.OutOrStdout(), v)
	}
	if err != nil || cancelled || !v.State.Over() {
		return err
	}
	return judgeOutcome(c, v)
}

// Exit codes of a validation that is done and not fine.
const (
	exitSlow      = 3
	exitNotJudged = 4
)

// judgeOutcome ends the command by what came of the validation: only one that is fine succeeds.
func judgeOutcome(c *cobra.Command, v falcon.Validation) error {
	switch v.Outcome() {
	case falcon.TestsFailed:
		return fmt.Errorf("%s was %s: %s", v.ID, v.State, orUnknown(v.Reason))
	case falcon.TestsSlow:
		fmt.Fprintf(c.ErrOrStderr(), "falcon: %s\n", report.Headline(v))
		return exitError(exitSlow)
	case falcon.TestsNotJudged:
		fmt.Fprintf(c.ErrOrStderr(), "falcon: %s: %s\n", report.Headline(v), report.Remedy(v))
		return exitError(exitNotJudged)
	}
	return nil
}

func orUnknown(reason string) string {
	if reason == "" {
		return "the engine gave no reason"
	}
	return reason
}
