package tui

import (
	"context"
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// pageScene is a page in a state that no moment of the story shows.
type pageScene struct {
	name    string
	page    key.Scope
	options enginetest.Options
	iter    int64
	before  func(*enginetest.Engine) // at the iteration
	after   int                      // iterations further
	keys    []string
}

func asks(r *falconv1.ValidateRequest) func(*enginetest.Engine) {
	return func(e *enginetest.Engine) {
		_, _ = e.Validate(context.Background(), r)
	}
}

var allTests = &falconv1.ValidateRequest{
	Gemm:     true,
	LinkTest: true,
	Reason:   "after the second alarm",
}

var pageScenes = []pageScene{
	{"validating-gpus", key.Validate, enginetest.Options{}, 54, asks(allTests), 0, nil},
	{"validating-pass", key.Validate, enginetest.Options{}, 54, asks(allTests), 1, nil},
	{
		"matrix-nodes",
		key.Validate,
		enginetest.Options{SlowLink: "n1-n2"},
		54,
		asks(allTests),
		3,
		[]string{"r"},
	},
	{
		"matrix-ranks",
		key.Validate,
		enginetest.Options{SlowLink: "n1-n2"},
		54,
		asks(allTests),
		3,
		[]string{"r", "m"},
	},
	{
		"links",
		key.Validate,
		enginetest.Options{SlowLink: "n1-n2", Recurring: true},
		54,
		asks(allTests),
		3,
		[]string{"L", "space", "j", "j", "space"},
	},
	{"older", key.Validate, enginetest.Options{}, 54, asks(allTests), 3, []string{"["}},
	{"hairline", key.Posterior, enginetest.Options{}, 120, nil, 0, []string{"N", "h"}},
	{"past", key.Posterior, enginetest.Options{}, 239, nil, 0, []string{"[", "["}},
	{"watch", key.Overview, enginetest.Options{Recurring: true}, 54, asks(allTests), 1, nil},
	{
		"recovering",
		key.Overview,
		enginetest.Options{Recurring: true},
		54,
		func(e *enginetest.Engine) { e.Lose(falcon.RecoveryReplace) },
		0,
		nil,
	},
	{
		"asked",
		key.Recovery,
		enginetest.Options{},
		54,
		func(e *enginetest.Engine) { e.Lose(falcon.RecoveryProposed) },
		0,
		nil,
	},
	{
		"replacing",
		key.Recovery,
		enginetest.Options{},
		54,
		func(e *enginetest.Engine) { e.Lose(falcon.RecoveryReplace) },
		0,
		nil,
	},
	{
		"rejoining",
		key.Recovery,
		enginetest.Options{},
		54,
		func(e *enginetest.Engine) { e.Lose(falcon.RecoveryRejoin) },
		0,
		nil,
	},
	{
		"resumed",
		key.Recovery,
		enginetest.Options{},
		54,
		func(e *enginetest.Engine) { e.Lose(falcon.RecoveryResumed) },
		0,
		nil,
	},
	{"approved", key.Ladder, enginetest.Options{Rung: "S3", Undo: 10}, 92, approves("li"), 0, nil},
	{"approved", key.Overview, enginetest.Options{Rung: "S3", Undo: 10}, 92, approves("li"), 0, nil},
	{"second", key.Ladder, enginetest.Options{Rung: "S3", Undo: 10, Two: true}, 54, approves("li"), 0, nil},
	{"second", key.Overview, enginetest.Options{Rung: "S3", Two: true}, 54, approves("li"), 0, nil},
	{"first", key.Ranks, enginetest.Options{Rung: "S4", Two: true}, 54, approves("maria"), 0, []string{"a"}},
	{"audit", key.Events, enginetest.Options{}, 54, decides, 20, []string{"t"}},
	{"several", key.Ladder, enginetest.Options{Second: true}, 54, nil, 0, nil},
	{"several-shown", key.Ladder, enginetest.Options{Second: true}, 54, nil, 0, []string{"["}},
	{"several-elsewhere", key.Ranks, enginetest.Options{Second: true}, 54, decidesLink, 1, nil},
	{"hang", key.Overview, enginetest.Options{}, 40, func(e *enginetest.Engine) { e.Hang(true) }, 0, nil},
	{
		"hang-unsure",
		key.Overview,
		enginetest.Options{},
		40,
		func(e *enginetest.Engine) { e.Hang(false) },
		0,
		nil,
	},
	{"past", key.Overview, enginetest.Options{Past: true}, 54, nil, 0, nil},
	{"past", key.Ladder, enginetest.Options{Past: true}, 54, nil, 0, nil},
	{"history", key.Events, enginetest.Options{Past: true}, 54, nil, 0, []string{"h", "j"}},
	{
		"history-cause",
		key.Events,
		enginetest.Options{Past: true},
		54,
		nil,
		0,
		[]string{"h", "/", "g", "p", "u", "enter"},
	},
	{
		"history-device",
		key.Events,
		enginetest.Options{Past: true},
		54,
		nil,
		0,
		append([]string{"h", "/"}, append(strings.Split("device:n1.g0", ""), "enter")...),
	},
	{"history-none", key.Events, enginetest.Options{}, 10, nil, 0, []string{"h"}},
	{"nothing", key.Events, enginetest.Options{}, 10, nil, 0, []string{"s", "s"}},
}

// approves is another operator's approval, or one's own.
func approves(by string) func(*enginetest.Engine) {
	return func(e *enginetest.Engine) { e.Elsewhere(true, by, "the link is worn") }
}

func decides(e *enginetest.Engine) {
	_, _ = e.Decide(context.Background(), &falconv1.DecideRequest{
		Action:   "INC-0001/S2/1",
		PlanHash: "9f2c41d0",
		Approve:  true,
		Reason:   "the evidence is plain",
	})
}

func decidesLink(e *enginetest.Engine) {
	_, _ = e.Decide(context.Background(), &falconv1.DecideRequest{
		Action:   enginetest.SecondID + "/S3/1",
		PlanHash: enginetest.SecondHash,
		Approve:  true,
	})
}

func (x pageScene) screen(
	t *testing.T,
	w, h int,
	profile colorprofile.Profile,
	theme string,
	ascii bool,
) *Model {
	t.Helper()
	e := enginetest.New(x.options)
	e.AdvanceTo(x.iter)
	if x.before != nil {
		x.before(e)
	}
	e.Advance(x.after)
	s := pictureOf(t, e, feed.Want{
		Rank:       -1,
		Columns:    int32(2 * w),
		RunLengths: 128,
		Recent:     60,
	})
	tests, err := e.Incidents(context.Background(), &falconv1.IncidentsRequest{OnlyValidations: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Validations = tests.Validations
	if s.History, err = e.History(context.Background(), &falconv1.HistoryRequest{}); err != nil {
		t.Fatal(err)
	}
	m, err := New(&still{state: s}, Options{
		Theme:   theme,
		Profile: &profile,
		Now:     newClock().now,
		ASCII:   ascii,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	m.work.showPage(x.page)
	for _, k := range x.keys {
		m.Update(keyMsg(k))
	}
	m.screen.dirty = true
	return m
}

// States of pages that the moments do not reach: words at two sizes and in
// ASCII, and the styles of every size, profile and theme.
func TestGoldenScenes(t *testing.T) {
	drawsAlone(t)
	styles := inks{}
	for _, x := range pageScenes {
		for _, s := range sizes[:2] {
			m := x.screen(t, s[0], s[1], colorprofile.TrueColor, "dark", false)
			golden(
				t,
				fmt.Sprintf("text/scene-%s-%s-%dx%d.txt", x.page, x.name, s[0], s[1]),
				trimRows(text(m)),
			)
		}
		m := x.screen(t, 80, 24, colorprofile.ASCII, "dark", true)
		for _, r := range m.View().Content {
			if r > 126 {
				t.Fatalf("%s: %q with ASCII only", x.name, r)
			}
		}
		for _, s := range sizes {
			name := fmt.Sprintf("scene-%s-%s", x.page, x.name)
			styles.add(picture(t, name, s[0], s[1], func(l look) string {
				view := x.screen(t, s[0], s[1], l.profile, l.theme, false).View().Content
				checkGeometry(t, view, s[0], s[1])
				return view
			}))
		}
	}
	golden(t, "styled/scenes.txt", styles.table())
}
