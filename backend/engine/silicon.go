package engine

import (
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/sheet"
)

// siliconPeriod is the time between two looks at all GPUs of the job together.
const siliconPeriod = 5 * time.Second

// siliconWatch compares the job's GPUs with their data sheet: what slows all of them alike, from
// the first iteration on, shows in no comparison of ranks. It informs; nothing is done on it.
type siliconWatch struct {
	*shared

	watch  *sheet.Watch
	looked time.Time
	tested string // newest validation that was taken in
	report sheet.Report
}

func newSiliconWatch(s *shared) *siliconWatch {
	return &siliconWatch{shared: s, watch: sheet.NewWatch()}
}

// look judges all GPUs, and reports what is new and what has ended.
func (w *siliconWatch) look(now time.Time) {
	if !w.looked.IsZero() && now.Sub(w.looked) < siliconPeriod {
		return
	}
	w.looked = now
	w.takeTests()
	was := w.report
	w.report = w.watch.Look(now, w.state.job.Placement)
	for _, s := range w.report.Slow {
		if !slices.Contains(was.Slow, s) {
			w.oplog.logf("silicon", 2, "", "%s", w.report.Text(s))
		}
	}
	for _, s := range was.Slow {
		if !slices.Contains(w.report.Slow, s) {
			w.oplog.logf("silicon", 0, "", "no longer so: %s", was.Text(s))
		}
	}
}

// takeTests takes in the matrix tests of the newest validation that is over.
func (w *siliconWatch) takeTests() {
	for _, rec := range slices.Backward(w.state.tests) {
		v := rec.Validation
		if v.State != falcon.ValidationDone || len(v.GEMM) == 0 {
			continue
		}
		if v.ID != w.tested {
			w.tested = v.ID
			w.watch.Tested(v.Ask.GEMMSide, v.GEMM)
		}
		return
	}
}

// view is nil where no GPU of the job is read.
func (w *siliconWatch) view() *falconv1.Silicon {
	r := w.report
	if r.GPUs == 0 {
		return nil
	}
	out := &falconv1.Silicon{
		Model:        clean(r.Model),
		Gpus:         int32(r.GPUs),
		HalfTflops:   r.Sheet.Half,
		SingleTflops: r.Sheet.Single,
		Clock:        uint32(r.Clock),
		Busy:         uint32(r.Busy),
		SmBusy:       uint32(r.SMBusy),
		Matrix:       uint32(r.Matrix),
		MatrixBits:   int32(r.Bits),
		Reasons:      r.Reasons,
	}
	for _, s := range r.Slow {
		out.Found = append(out.Found, &falconv1.SiliconFinding{
			Slow: falconv1.SiliconSlow(s),
			Text: clean(r.Text(s)),
		})
	}
	return out
}
