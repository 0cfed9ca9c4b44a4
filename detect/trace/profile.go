package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/failslow/falcon"
)

// Bounds on a profile.
const (
	MaxProfileBytes = 64 << 20 // of the file
	MaxWorld        = 1 << 20  // ranks of a layout
	MinMs, MaxMs    = 1e-9, 1e12
)

// isDuration reports whether ms can be how long something took.
func isDuration(ms float64) bool { return ms >= MinMs && ms <= MaxMs }

// Profile is one profile window as a file has it.
type Profile struct {
	Layout     falcon.Layout
	Iterations int // that the calls are of
	Groups     []ProfileGroup
	SelfMs     []float64 // one per rank, per micro-batch; nil when the file has none
	Healthy    *Profile  // the same groups when nothing was wrong; nil when the file has none
}

// ProfileGroup is one communication group's calls of one kind.
type ProfileGroup struct {
	Dimension falcon.Dimension
	Ranks     []falcon.Rank // of a send or receive: the sender, then the receiver
	Op        falcon.Op
	Bytes     int64
	Internode bool
	Calls     [][]float64 // calls × members, milliseconds, all positive
	Starts    [][]float64 // likewise, each by its rank's own clock; nil when the file has none
}

// profileFile is the file's shape.
type profileFile struct {
	Layout *falcon.Layout `json:"layout"`
	Groups []profileGroup `json:"groups"`
	SelfMs []float64      `json:"self_ms"`
	// Iterations is how many the calls are of, 0 = 1.
	Iterations int `json:"iterations"`
	// Healthy holds groups and self_ms of a window in which nothing was wrong.
	Healthy *profileFile `json:"healthy"`
}

type profileGroup struct {
	Dimension   string        `json:"dimension"`
	Ranks       []falcon.Rank `json:"ranks"`
	Op          string        `json:"op"`
	Bytes       int64         `json:"bytes"`
	Internode   bool          `json:"internode"`
	DurationsMs callsMs       `json:"durations_ms"`
	StartsMs    callsMs       `json:"starts_ms"`
}

// callsMs are durations, calls × members; one call may come without its list.
type callsMs [][]float64

// UnmarshalJSON takes a list of numbers, one per member, or a list of those.
func (c *callsMs) UnmarshalJSON(b []byte) error {
	var one []float64
	if err := json.Unmarshal(b, &one); err == nil {
		if len(one) > 0 {
			*c = callsMs{one}
		}
		return nil
	}
	var many [][]float64
	if err := json.Unmarshal(b, &many); err != nil {
		return errors.New(
			"durations_ms and starts_ms must be a list of numbers, one per member, or a list of such lists, one per call",
		)
	}
	*c = many
	return nil
}

// ReadProfile reads a profile: one JSON object with "layout" {tp, dp, pp},
// "groups" of {dimension, ranks, op, bytes, internode, durations_ms}, and where
// known "self_ms", one per rank, and "healthy" with groups and self_ms of
// before. durations_ms holds one number per member in the order of ranks, or a
// list of such lists, one per call. "starts_ms" beside it, each by its rank's own
// clock, and "iterations" let overlap be seen.
func ReadProfile(r io.Reader) (Profile, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxProfileBytes+1))
	if err != nil {
		return Profile{}, fmt.Errorf("trace: reading: %w", err)
	}
	if len(b) > MaxProfileBytes {
		return Profile{}, fmt.Errorf("%w: more than %d bytes; profile fewer groups",
			ErrTooLarge, MaxProfileBytes)
	}
	if err := refusePickle(b); err != nil {
		return Profile{}, err
	}
	var f profileFile
	if err := json.Unmarshal(bytes.TrimPrefix(b, []byte("\ufeff")), &f); err != nil {
		return Profile{}, malformed(0, "%s", jsonSentence(err))
	}
	if f.Layout == nil {
		return Profile{}, malformed(0, `no "layout"; give {"tp":…,"dp":…,"pp":…}`)
	}
	return f.toProfile(*f.Layout)
}

func (f *profileFile) toProfile(l falcon.Layout) (Profile, error) {
	if err := checkLayout(l); err != nil {
		return Profile{}, err
	}
	if f.Iterations < 0 || f.Iterations > MaxProfileBytes {
		return Profile{}, malformed(0, "iterations %d; give how many the calls are of, 1 or more",
			f.Iterations)
	}
	p := Profile{
		Layout:     l,
		Iterations: max(1, f.Iterations),
		SelfMs:     f.SelfMs,
	}
	if len(f.Groups) == 0 && len(f.SelfMs) == 0 {
		return Profile{}, malformed(0, `neither "groups" nor "self_ms"; there is nothing to compare`)
	}
	if n := len(f.SelfMs); n != 0 && n != l.World() {
		return Profile{}, malformed(0, "self_ms has %d numbers for %d ranks; give one per rank", n, l.World())
	}
	for r, ms := range f.SelfMs {
		if !isDuration(ms) {
			return Profile{}, malformed(0,
				"self_ms of rank %d is %g; a time must be positive, and below 1e12 ms",
				r, ms)
		}
	}
	for i := range f.Groups {
		g, err := f.Groups[i].toGroup(i, l)
		if err != nil {
			return Profile{}, err
		}
		p.Groups = append(p.Groups, g)
	}
	if f.Healthy != nil {
		healthy, err := f.Healthy.toProfile(l)
		if err != nil {
			return Profile{}, err
		}
		p.Healthy = &healthy
	}
	return p, nil
}

// checkLayout refuses layouts that can't exist, without overflow.
func checkLayout(l falcon.Layout) error {
	if err := l.Validate(); err != nil {
		return malformed(
			0,
			"%s",
			strings.TrimPrefix(err.Error(), falcon.ErrLayout.Error()+": "),
		)
	}
	if l.TP > MaxWorld || l.DP > MaxWorld/l.TP || l.PP > MaxWorld/(l.TP*l.DP) {
		return fmt.Errorf("%w: the layout has more than %d ranks", ErrTooLarge, MaxWorld)
	}
	return nil
}

var dimensions = []falcon.Dimension{falcon.DimTP, falcon.DimDP, falcon.DimPP, falcon.DimWorld, "cp", "ep"}

func (g *profileGroup) toGroup(i int, l falcon.Layout) (ProfileGroup, error) {
	out := ProfileGroup{
		Dimension: falcon.Dimension(strings.ToLower(g.Dimension)),
		Ranks:     g.Ranks,
		Bytes:     g.Bytes,
		Internode: g.Internode,
		Calls:     g.DurationsMs,
		Starts:    g.StartsMs,
	}
	if !slices.Contains(dimensions, out.Dimension) {
		return out, malformed(0, "group %d: dimension %q is none of tp, dp, pp, world, cp, ep",
			i, clipField(g.Dimension))
	}
	var known bool
	if out.Op, known = OpOf(g.Op); !known {
		return out, malformed(0, "group %d: op %q is no communication call such as allreduce",
			i, clipField(g.Op))
	}
	if g.Bytes < 0 {
		return out, malformed(0, "group %d: bytes %d can't be negative", i, g.Bytes)
	}
	if err := checkMembers(i, g.Ranks, l); err != nil {
		return out, err
	}
	if (out.Op == falcon.OpSend || out.Op == falcon.OpRecv) && len(g.Ranks) != 2 {
		return out, malformed(0, "group %d: a %s has two ranks, the sender and the receiver", i, out.Op)
	}
	return out, out.checkCalls(i)
}

func checkMembers(i int, ranks []falcon.Rank, l falcon.Layout) error {
	if len(ranks) < 2 {
		return malformed(0, "group %d: %d ranks; a group has at least two", i, len(ranks))
	}
	seen := make(map[falcon.Rank]bool, len(ranks))
	for _, r := range ranks {
		if r < 0 || int(r) >= l.World() {
			return malformed(0, "group %d: rank %d is not in a layout of %d ranks", i, r, l.World())
		}
		if seen[r] {
			return malformed(0, "group %d: rank %d is listed twice", i, r)
		}
		seen[r] = true
	}
	return nil
}

func (g *ProfileGroup) checkCalls(i int) error {
	if len(g.Calls) == 0 {
		return malformed(0, "group %d: no durations_ms", i)
	}
	for _, call := range g.Calls {
		if len(call) != len(g.Ranks) {
			return malformed(0,
				"group %d: %d durations for %d members; give one per member, in the order of ranks",
				i, len(call), len(g.Ranks))
		}
		for m, ms := range call {
			if !isDuration(ms) {
				return malformed(0,
					"group %d: a duration of rank %d is %g; a time must be positive, and below 1e12 ms",
					i, g.Ranks[m], ms)
			}
		}
	}
	return g.checkStarts(i)
}

func (g *ProfileGroup) checkStarts(i int) error {
	if len(g.Starts) > 0 && len(g.Starts) != len(g.Calls) {
		return malformed(0, "group %d: starts_ms of %d calls for durations_ms of %d",
			i, len(g.Starts), len(g.Calls))
	}
	for _, call := range g.Starts {
		if len(call) != len(g.Ranks) {
			return malformed(0,
				"group %d: %d starts for %d members; give one per member, in the order of ranks",
				i, len(call), len(g.Ranks))
		}
		for m, ms := range call {
			if !(ms >= 0 && ms <= MaxMs) {
				return malformed(0,
					"group %d: a start of rank %d is %g; a time can't be negative, and is below 1e12 ms",
					i, g.Ranks[m], ms)
			}
		}
	}
	return nil
}

// jsonSentence makes a decoder's error one clean line without Go's types.
func jsonSentence(err error) string {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF):
		return "the input is empty; give one JSON document"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON breaks off in the middle; is the file complete?"
	case errors.As(err, &kind):
		return fmt.Sprintf("%s can't be a %s", clipField(orDocument(kind.Field)), clipField(kind.Value))
	case errors.As(err, &syntax) && strings.Contains(err.Error(), "unexpected end"):
		return "the JSON breaks off in the middle; is the file complete?"
	case errors.As(err, &syntax):
		return fmt.Sprintf("this is no JSON at byte %d: %s", syntax.Offset, clipToLength(syntax.Error(), 120))
	}
	return clipToLength(err.Error(), 200)
}

func orDocument(field string) string {
	if field == "" {
		return "the document"
	}
	return field
}
