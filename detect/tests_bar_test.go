package detect

import (
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// A test that was not allowed changes neither the confidence nor what is named, and the verdict says what
// it would have decided; one that was tried and came to nothing costs a tenth.
func TestWhatIsNotAllowedCostsNothing(t *testing.T) {
	confidence := map[string]float64{}
	for _, tests := range []string{"off", "barred", "refused"} {
		w := rings(3)
		w.nics = false
		w.tests = tests
		w.job.Link[falcon.NewLink("n0", "n1")] = 0.05
		w.run(30)
		if len(w.all) != 1 {
			t.Fatalf("%s: %d incidents\n%s", tests, len(w.all), w.out.String())
		}
		v := w.all[0].Verdict
		confidence[tests] = v.Confidence
		if (v.Untested != nil) != (tests == "barred") {
			t.Fatalf("%s: untested %+v", tests, v.Untested)
		}
		if tests != "barred" {
			continue
		}
		u := *v.Untested
		if u.Bar != falcon.BarPolicy ||
			u.Question != falcon.QuestionLink ||
			u.Links < 4 ||
			u.GPUs != 0 {
			t.Errorf("%+v", u)
		}
		i := slices.IndexFunc(v.Evidence, func(e falcon.Evidence) bool {
			return e.Text == u.Text()
		})
		if i < 0 ||
			v.Evidence[i].Against ||
			!strings.Contains(u.Text(), "which link is slow") {
			t.Errorf("%q is not said in %+v", u.Text(), v.Evidence)
		}
	}
	if confidence["off"] != confidence["barred"] || !(confidence["refused"] < confidence["off"]) {
		t.Errorf("%v", confidence)
	}
}
