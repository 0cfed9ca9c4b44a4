package enginetest

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// TestIterations is how long a validation asked for by a console is shown as
// held, in iterations of the story.
const TestIterations = 3

// held is a validation asked for by a console.
type held struct {
	request *falconv1.ValidateRequest
	at      int64
	stopped bool
}

// Validates lists every request to test, refused ones included.
func (e *Engine) Validates() []*falconv1.ValidateRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*falconv1.ValidateRequest(nil), e.validates...)
}

// Validate takes a request as the engine does.
func (e *Engine) Validate(_ context.Context, r *falconv1.ValidateRequest) (*falconv1.ValidateReply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.validates = append(e.validates, r)
	switch {
	case e.opts.Role == "viewer":
		return nil, status.Error(codes.PermissionDenied, "the role viewer may not test")
	case e.refuse != "":
		return nil, status.Error(codes.FailedPrecondition, e.refuse)
	case r.Cancel != "" && (e.test == nil || e.iter >= e.test.at+TestIterations):
		return nil, status.Error(codes.FailedPrecondition, r.Cancel+" is not in progress")
	case r.Cancel != "":
		e.test.stopped = true
	default:
		e.test = &held{request: r, at: e.iter}
	}
	e.log(e.iter, "validation", "VAL-0002 asked for by maria", 0)
	return &falconv1.ValidateReply{Validation: e.validation()}, nil
}

// validation is the newest one: the engine's own once the culprit is located,
// then the console's.
func (e *Engine) validation() *falconv1.Validation {
	switch {
	case e.test != nil:
		return e.asked()
	case e.story() >= Located+2:
		return e.first()
	}
	return nil
}

// first is the engine's own.
func (e *Engine) first() *falconv1.Validation {
	v := &falconv1.Validation{
		Id:        "VAL-0001",
		Incident:  "INC-0001",
		By:        "engine",
		Why:       "the self time of n1.g0 is 2.00 x its peers'",
		State:     "done",
		Iteration: Located,
		PausedMs:  84,
		QuietMs:   410,
		Attempts:  1,
		Emulated:  true,
		GemmN:     128,
	}
	e.results(v, true, false)
	return v
}

func (e *Engine) asked() *falconv1.Validation {
	r := e.test.request
	v := &falconv1.Validation{
		Id:           "VAL-0002",
		By:           "maria" + e.hostile,
		Why:          r.Reason,
		State:        "testing",
		Iteration:    e.test.at + 2,
		QuietMs:      400,
		Attempts:     1,
		Emulated:     true,
		GemmN:        128,
		MessageBytes: 1 << 20,
	}
	if r.LinkTest {
		v.Passes = 3
		v.ExtraPasses = 1
		v.PassesDone = 1
	}
	switch {
	case e.test.stopped:
		v.State, v.Reason, v.PausedMs = "failed", "ended by maria"+e.hostile, 120
	case e.iter < e.test.at+TestIterations:
		e.running(v, r)
	default:
		v.State = "done"
		v.PassesDone = v.Passes
		v.PausedMs = 182
		e.results(v, r.Gemm, r.LinkTest)
	}
	return v
}

// running is what a validation that holds the job is at: GPUs first, then a
// pass an iteration.
func (e *Engine) running(v *falconv1.Validation, r *falconv1.ValidateRequest) {
	now := e.opts.at(e.iter)
	n := &falconv1.ValidationNow{
		Step:           "gemm",
		HeldUnixNs:     now.Add(-90 * time.Millisecond).UnixNano(),
		DeadlineUnixNs: now.Add(8 * time.Second).UnixNano(),
	}
	world := int32(min(16, e.opts.world()))
	for i := range world {
		n.Ranks = append(n.Ranks, i)
	}
	v.Now = n
	if !r.LinkTest && len(r.Links) == 0 || r.Gemm && e.iter == e.test.at {
		v.PassesDone = 0
		return
	}
	n.Step, n.Pass = "pass", v.PassesDone
	for i := n.Pass % 2; i+1 < world; i += 2 {
		n.Pairs = append(n.Pairs, &falconv1.RankPair{A: i, B: i + 1})
	}
	if r.Gemm {
		e.results(v, true, false)
	}
}

// validations lists those of the story, newest first.
func (e *Engine) validations() []*falconv1.Validation {
	var out []*falconv1.Validation
	if v := e.validation(); v != nil {
		out = append(out, v)
	}
	if e.test != nil && e.iter >= Located+2 {
		out = append(out, e.first())
	}
	return out
}

// results are those of the story: the culprit multiplies at half speed, the
// links are healthy.
func (e *Engine) results(v *falconv1.Validation, gemm, links bool) {
	device := func(r int32) string {
		return fmt.Sprintf("n%d.g%d%s", r/2, r%2, e.hostile)
	}
	world := int32(min(16, e.opts.world()))
	for r := range world {
		if gemm {
			g := &falconv1.GemmResult{
				Rank:     r,
				Device:   device(r),
				Ms:       6.2 + 0.01*float64(r%3),
				MedianMs: 6.21,
				Ratio:    1,
				Bits:     16,
			}
			if r == e.opts.culprit() && e.story() >= Onset && e.story() < Cleared {
				g.Ms = 12.4
				g.Ratio = 2
				g.Slow = true
			}
			v.Gemm = append(v.Gemm, g)
		}
		if next := (r + 1) % world; links {
			l := &falconv1.LinkResult{
				From:       r,
				To:         next,
				FromDevice: device(r),
				ToDevice:   device(next),
				Class:      "same rail",
				Pass:       r % 2,
				Bytes:      1 << 20,
				Ms:         2.1 + 0.01*float64(r%5),
				BaseMs:     2.1,
				Ratio:      1,
				Basis:      "class",
			}
			if r/2 == next/2 {
				l.Class = "intra-node"
				l.Ms = 2.4
				l.BaseMs = 2.4
			} else {
				l.Link = fmt.Sprintf("n%d-n%d", min(r, next)/2, max(r, next)/2)
				l.Slow = l.Link == e.opts.SlowLink
			}
			if l.Slow {
				l.Ms = 3.9
				l.Ratio = 1.86
				l.Limit = 1.2
			}
			v.Links = append(v.Links, l)
		}
	}
}
