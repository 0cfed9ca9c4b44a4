package tui

import (
	"context"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// An approval whose placement uses a device that incidents have named says so; one
// that leaves it does not.
func TestDialogNamesThePast(t *testing.T) {
	e := enginetest.New(enginetest.Options{Past: true})
	e.AdvanceTo(54)
	live := page.NewState(pictureOf(t, e, feed.Want{Rank: -1}))
	q := &decision.Approve{}
	q.Action = &falconv1.Action{Rung: "S4", Placement: []string{"n0.g0", "n1.g0"}}
	if lines := pastLines(q, live, 80); len(lines) != 2 ||
		!strings.Contains(lines[0].Text, "n1.g0: culprit of INC-0907, 5 min ago, barred by dana") {
		t.Errorf("%+v", lines)
	}
	q.Action.Placement[1] = "n3.g0"
	if lines := pastLines(q, live, 80); len(lines) != 0 {
		t.Errorf("%+v", lines)
	}
}

// On the history e writes the whole of it, as Markdown and as JSON, and enter leads to
// the incident under the cursor.
func TestHistoryIsExportedAndOpened(t *testing.T) {
	files := map[string]string{}
	e := enginetest.New(enginetest.Options{Past: true})
	e.AdvanceTo(54)
	s := pictureOf(t, e, wide)
	r, err := e.History(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.History = r
	m := quiet(t, &still{state: s}, Options{
		Theme: "dark",
		Now:   newClock().now,
		Save: func(name string, data []byte) (string, error) {
			files[name] = string(data)
			return "/state/" + name, nil
		},
	}, 120, 40)
	if drive(m, "8"); m.work.wantedData("").History {
		t.Error("the history is pulled while the events are shown")
	}
	if drive(m, "h"); !m.work.wantedData("").History {
		t.Error("the history is shown and not pulled")
	}
	drive(m, "e")
	if !strings.Contains(files["history.md"], "| INC-0906 |") ||
		!strings.Contains(files["history.json"], `"incident": "INC-0907"`) ||
		!strings.Contains(m.notes.text, "/state/history.md") {
		t.Errorf("toast %q, files %v", m.notes.text, files)
	}
	drive(m, "j") // the one that lasts is first
	drive(m, "j")
	send(m, "enter")
	if m.work.current != key.Ladder ||
		m.work.look == nil ||
		m.work.look.id != "INC-0906" {
		t.Errorf("page %s, looking at %+v", m.work.current, m.work.look)
	}
}

// What is known of a link: the ranks that it joins, and its newest test, also where that
// could not judge it.
func TestTheHistoryOfALink(t *testing.T) {
	e := enginetest.New(enginetest.Options{Past: true})
	e.AdvanceTo(54)
	s := pictureOf(t, e, wide)
	r, err := e.History(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.History = r
	s.Snap.Validation = &falconv1.Validation{
		Id:    "VAL-0003",
		State: "done",
		Links: []*falconv1.LinkResult{{Link: "n1-n2", Unjudged: falcon.TooShort}},
	}
	m := quiet(
		t,
		&still{state: s},
		Options{Theme: "dark", Now: newClock().now},
		120,
		40,
	)
	for name, want := range map[string]string{
		"n1-n2": "n1-n2: joins ranks 2-3 and ranks 4-5 now",
		"n1-n9": "n1-n9: no rank of the job is on it",
		"n1":    "n1: ranks 2-3 now",
	} {
		m.work.openTyped("device/" + name)
		m.screen.dirty = true
		got := text(m)
		if !strings.Contains(got, want) ||
			strings.Contains(
				got,
				"tested by VAL-0003, not judged: "+string(falcon.TooShort),
			) != (name == "n1-n2") {
			t.Errorf("%s: want %q in\n%s", name, want, got)
		}
	}
}
