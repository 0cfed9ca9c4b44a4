package alert

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
)

var start = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

func live(snap *falconv1.SnapshotReply) *feed.State {
	return &feed.State{Snap: snap, Conn: feed.Live}
}

func incident(ids ...string) *falconv1.SnapshotReply {
	out := &falconv1.SnapshotReply{}
	for _, id := range ids {
		out.Incidents = append(out.Incidents, &falconv1.Incident{
			Id:        id,
			State:     "located",
			SlowMs:    400,
			HealthyMs: 210,
		})
	}
	return out
}

// script drives a core: each line is a second, a state, and what is expected.
type line struct {
	at    int // seconds
	in    Input
	bell  bool
	title string // of the note, "" = none
}

func play(t *testing.T, lines []line) {
	t.Helper()
	var c Core
	for i, l := range lines {
		a := c.Step(start.Add(time.Duration(l.at)*time.Second), l.in)
		got := ""
		if a.Note != nil {
			got = a.Note.Title
		}
		if a.Bell != l.bell || got != l.title {
			t.Errorf("line %d, second %d: bell %v, note %q; want %v, %q",
				i, l.at, a.Bell, got, l.bell, l.title)
		}
	}
}

func TestWhatWasThereIsNoNews(t *testing.T) {
	s := live(incident("INC-0001"))
	play(t, []line{
		{0, Input{State: &feed.State{Snap: &falconv1.SnapshotReply{}}}, false, ""},
		{1, Input{State: s}, false, ""},
		{2, Input{State: s}, false, ""},
		{3, Input{State: live(incident("INC-0002", "INC-0001"))}, true, "Falcon: INC-0002"},
	})
}

// A proposal of an incident that is not the present one rings too.
func TestEveryProposalIsNews(t *testing.T) {
	quiet := incident("INC-0002", "INC-0001")
	asks := incident("INC-0002", "INC-0001")
	asks.Others = []*falconv1.Ladder{{
		Incident: "INC-0001",
		Proposal: &falconv1.Action{
			Id:       "INC-0001/S2/1",
			Incident: "INC-0001",
			Rung:     "S2",
			State:    "proposed",
		},
	}}
	play(t, []line{
		{0, Input{State: live(quiet)}, false, ""},
		{40, Input{State: live(asks)}, true, "Falcon: S2 proposed"},
	})
}

func TestBellIsRareAndNotLost(t *testing.T) {
	one := live(incident("INC-0001"))
	two := live(incident("INC-0002", "INC-0001"))
	three := live(incident("INC-0003", "INC-0002", "INC-0001"))
	quiet := live(&falconv1.SnapshotReply{})
	play(t, []line{
		{0, Input{State: quiet, Focused: true}, false, ""},
		{1, Input{State: one, Focused: true}, true, ""},
		{5, Input{State: two, Focused: true}, false, ""},
		{30, Input{State: two, Focused: true}, false, ""},
		{31, Input{State: two, Focused: true}, true, ""},
		{62, Input{State: two, Focused: true}, false, ""},
		{63, Input{State: three, Focused: true, Muted: true}, false, ""},
		{100, Input{State: three, Focused: true}, false, ""}, // muted means heard
	})
}

func TestWhatHasPassedIsNotRung(t *testing.T) {
	quiet := live(&falconv1.SnapshotReply{})
	play(t, []line{
		{0, Input{State: quiet}, false, ""},
		{1, Input{State: live(incident("INC-0001"))}, true, "Falcon: INC-0001"},
		{3, Input{State: live(incident("INC-0002"))}, false, ""},
		{5, Input{State: quiet}, false, ""},
		{40, Input{State: quiet}, false, ""},
	})
}

func TestNotesOnlyWhileNobodyLooks(t *testing.T) {
	quiet := live(&falconv1.SnapshotReply{})
	play(t, []line{
		{0, Input{State: quiet, Focused: true}, false, ""},
		{1, Input{State: live(incident("INC-0001")), Focused: true}, true, ""},
		{2, Input{State: live(incident("INC-0001"))}, false, ""}, // seen already
		{3, Input{State: live(incident("INC-0002", "INC-0001"))}, false, "Falcon: INC-0002"},
		{4, Input{State: live(incident("INC-0003", "INC-0002"))}, false, ""},
		{5, Input{State: live(incident("INC-0004", "INC-0003"))}, false, ""},
		{13, Input{State: live(incident("INC-0004", "INC-0003"))}, false, "Falcon: INC-0004"}, // and one more
		{50, Input{State: live(incident("INC-0005")), Silent: true}, true, ""},
	})
}

func TestProposalRecoveryAndCountdown(t *testing.T) {
	deadline := start.Add(60 * time.Second).UnixNano()
	prop := incident("INC-0001")
	prop.Ladder = &falconv1.Ladder{Proposal: &falconv1.Action{
		Id:             "INC-0001/S2/1",
		Incident:       "INC-0001",
		Rung:           "S2",
		State:          "proposed",
		PlanHash:       "a",
		DeadlineUnixNs: deadline,
	}}
	rec := &falconv1.SnapshotReply{Recovery: &falconv1.Recovery{Id: "REC-0001", State: "suspend"}}
	play(t, []line{
		{0, Input{State: live(incident("INC-0001"))}, false, ""},
		{10, Input{State: live(prop)}, true, "Falcon: S2 proposed"},
		{44, Input{State: live(prop)}, false, ""},
		{45, Input{State: live(prop)}, true, "Falcon: countdown ends"},
		{46, Input{State: live(prop)}, false, ""},
		{90, Input{State: live(rec)}, true, "Falcon: REC-0001"},
	})
}

func TestLostEngineIsToldEachTime(t *testing.T) {
	up := live(&falconv1.SnapshotReply{})
	lost := &feed.State{Snap: &falconv1.SnapshotReply{}, Conn: feed.Lost}
	play(t, []line{
		{0, Input{State: up}, false, ""},
		{1, Input{State: lost}, true, "Falcon: engine unreachable"},
		{2, Input{State: lost}, false, ""},
		{40, Input{State: up}, false, ""},
		{80, Input{State: lost}, true, "Falcon: engine unreachable"},
	})
}

func env(pairs ...string) func(string) string {
	return func(k string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == k {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestChannels(t *testing.T) {
	for name, c := range map[string]struct {
		env   func(string) string
		want  Channel
		probe bool
	}{
		"iterm":   {env("TERM", "xterm-256color", "TERM_PROGRAM", "iTerm.app"), OSC9, true},
		"wezterm": {env("TERM", "xterm-256color", "TERM_PROGRAM", "WezTerm"), OSC777, true},
		"foot":    {env("TERM", "foot-extra"), OSC777, true},
		"kitty":   {env("TERM", "xterm-kitty"), OSC99, true},
		"xterm":   {env("TERM", "xterm-256color"), None, true},
		"tmux":    {env("TERM", "tmux-256color", "TERM_PROGRAM", "tmux"), None, false},
		"in tmux": {env("TERM", "xterm-256color", "TMUX", "/tmp/x"), None, false},
		"linux":   {env("TERM", "linux"), None, false},
		"dumb":    {env("TERM", "dumb"), None, false},
		"none":    {env(), None, false},
	} {
		if got := Choose(c.env); got != c.want || Probing(c.env) != c.probe {
			t.Errorf("%s: channel %d, probing %v", name, got, Probing(c.env))
		}
	}
}

func TestBytes(t *testing.T) {
	a := Alert{
		Bell: true,
		Note: &Note{
			ID:    "inc-INC-0001",
			Title: "Falcon: INC-0001",
			Body:  "slow; very",
		},
	}
	for ch, want := range map[Channel]string{
		None:   "\a",
		OSC9:   "\a\x1b]9;Falcon: INC-0001 – slow; very\a",
		OSC777: "\a\x1b]777;notify;Falcon: INC-0001;slow, very\a",
		OSC99:  "\a\x1b]99;i=falcon-inc-INC-0001:d=0:p=title;Falcon: INC-0001\a\x1b]99;i=falcon-inc-INC-0001:d=1:p=body;slow; very\a",
	} {
		if got := Encode(a, ch); got != want {
			t.Errorf("channel %d: %q, want %q", ch, got, want)
		}
	}
	if !Answered("\x1b]99;i=falcon-probe:p=?;a=focus:o=unfocused\x1b\\") ||
		Answered("\x1b]99;i=other:p=?;\a") ||
		Answered("\x1b]11;rgb:0/0/0\a") {
		t.Error("the probe's answer is not distinguished from others")
	}
}

// Whatever an engine sends, a note is one sequence that says what it should,
// and never OSC 9;4.
func FuzzEncode(f *testing.F) {
	f.Add("INC-0001", "t", "4;1;50")
	f.Add("x;y:z", "\x1b]52;c;eA==\a", "a\u202eb\u009c\x07")
	f.Fuzz(func(t *testing.T, id, title, body string) {
		for ch, sequences := range map[Channel]int{OSC9: 1, OSC777: 1, OSC99: 2} {
			got := Encode(Alert{Note: &Note{ID: id, Title: title, Body: body}}, ch)
			if strings.HasPrefix(got, "\x1b]9;4") ||
				strings.Count(got, "\x1b") != sequences ||
				strings.Count(got, "\a") != sequences ||
				!strings.HasSuffix(got, "\a") {
				t.Fatalf("%q", got)
			}
			for _, r := range strings.NewReplacer("\x1b]", "", "\a", "").Replace(got) {
				if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
					t.Fatalf("%q holds %U", got, r)
				}
			}
		}
	})
}

// A slowdown below 10 % is no news before it has cost its price, and then once.
func TestMinorSlowdownsRingByTheirCost(t *testing.T) {
	minor := func(lost float64) *feed.State {
		s := &falconv1.SnapshotReply{Incidents: []*falconv1.Incident{{
			Id:        "INC-0001",
			State:     "located",
			HealthyMs: 105_200,
			SlowMs:    111_000,
		}}}
		s.Others = []*falconv1.Ladder{{Incident: "INC-0001", LostGpuHours: lost}}
		return live(s)
	}
	play(t, []line{
		{0, Input{State: live(&falconv1.SnapshotReply{}), Price: 10}, false, ""},
		{40, Input{State: minor(0), Price: 10}, false, ""},
		{80, Input{State: minor(9.9), Price: 10}, false, ""},
		{120, Input{State: minor(10), Price: 10}, true, "Falcon: INC-0001"},
		{160, Input{State: minor(12), Price: 10}, false, ""},
	})
	play(t, []line{
		{0, Input{State: live(&falconv1.SnapshotReply{})}, false, ""},
		{40, Input{State: minor(0)}, true, "Falcon: INC-0001"},
	})
}

// A snoozed incident and its proposal ring no more; when the snooze ends, by its time or by
// the engine, what stands is news again. A countdown near its end is reported all the same.
func TestSnoozedIncidentsAreQuiet(t *testing.T) {
	with := func(quiet bool, until int) *feed.State {
		s := incident("INC-0001")
		s.Ladder = &falconv1.Ladder{
			Incident: "INC-0001",
			Proposal: &falconv1.Action{
				Id:             "a1",
				Incident:       "INC-0001",
				Rung:           "S2",
				State:          "proposed",
				DeadlineUnixNs: start.Add(300 * time.Second).UnixNano(),
			},
		}
		s.Triage = []*falconv1.Triage{{
			Incident:           "INC-0001",
			Quiet:              quiet,
			SnoozedUntilUnixNs: start.Add(time.Duration(until) * time.Second).UnixNano(),
		}}
		return live(s)
	}
	play(t, []line{
		{0, Input{State: live(&falconv1.SnapshotReply{})}, false, ""},
		{40, Input{State: with(true, 200)}, false, ""},
		{100, Input{State: with(true, 200)}, false, ""},
		{201, Input{State: with(true, 200)}, true, "Falcon: S2 proposed"},
		{240, Input{State: with(true, 200)}, false, ""},
	})
	play(t, []line{
		{0, Input{State: live(&falconv1.SnapshotReply{})}, false, ""},
		{40, Input{State: with(true, 900)}, false, ""},
		{100, Input{State: with(false, 900)}, true, "Falcon: S2 proposed"}, // it is worse
	})
	play(t, []line{
		{0, Input{State: live(&falconv1.SnapshotReply{})}, false, ""},
		{299, Input{State: with(true, 900)}, true, "Falcon: countdown ends"},
	})
}

// A recovery that comes to wait for a spare, and an end that is no success, ring.
func TestStandstillsAreCauses(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	s := &feed.State{
		Conn:     feed.Live,
		Received: at,
		Snap: &falconv1.SnapshotReply{
			AtUnixNs: at.UnixNano(),
			Job:      &falconv1.Job{State: "recovering"},
			Recovery: &falconv1.Recovery{
				Id:    "REC-0001",
				State: "suspend",
				Wait:  &falconv1.RecoveryWait{Spare: true, Then: "fail"},
			},
		},
	}
	has := func(id string) bool {
		return slices.ContainsFunc(Causes(s, at, 0), func(c Cause) bool {
			return c.ID == id && c.Body != ""
		})
	}
	if !has("waits-REC-0001") {
		t.Errorf("%+v", Causes(s, at, 0))
	}
	s.Snap.Recovery = nil
	s.Snap.Job = &falconv1.Job{
		State: "lost",
		End:   &falconv1.JobEnd{How: "failed", Why: "rank 3: ValueError"},
	}
	if !has("end-failed") {
		t.Errorf("%+v", Causes(s, at, 0))
	}
	s.Snap.Job = &falconv1.Job{
		State: "finished",
		End:   &falconv1.JobEnd{How: "finished"},
	}
	if list := Causes(s, at, 0); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
