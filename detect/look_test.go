package detect

import (
	"testing"

	"github.com/failslow/falcon"
)

// A profile that somebody else asks for is taken soon, once, and says when it was begun.
func TestLook(t *testing.T) {
	w := newWorld(falcon.Layout{TP: 1, DP: 4, PP: 2}, 4, 8, 3)
	w.describe()
	w.run(60)
	_, before := w.m.Profiled()
	asked := w.now
	if before.IsZero() || !before.Before(asked) {
		t.Fatalf("the healthy profile is of %v, it is %v", before, asked)
	}
	w.step(Look{Why: "is n1 still slow?"})
	if w.request == nil || w.request.Why != "is n1 still slow?" {
		t.Fatalf("asked for %+v", w.request)
	}
	w.run(6)
	if _, from := w.m.Profiled(); from.Before(asked) {
		t.Errorf("the newest profile is of %v, it was asked for at %v", from, asked)
	}
	for range 30 {
		w.run(1)
		if w.request != nil && w.request.Why == "is n1 still slow?" {
			t.Fatal("asked for twice")
		}
	}
}
