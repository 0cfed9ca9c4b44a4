package clean

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestString(t *testing.T) {
	for in, want := range map[string]string{
		"n1.g0":                             "n1.g0",
		"\x1b[31mred\x1b[0m":                "red",
		"a\x1b]0;title\x07b":                "ab",
		"a\x1b]52;c;ZXZpbA==\x1b\\b":        "ab",
		"a\u009b2Jb":                        "ab",
		"a\u009d0;x\u009cb":                 "ab",
		"a\x1bPq#0\x1b\\b":                  "ab",
		"two\nlines\tand tab":               "two lines and tab",
		"\u202eevil\u202c":                  "evil",
		"a\u2066b\u2069c\u200bd\ufeffe":     "abcde",
		"naïve → 42 µs, ÷2":                 "naïve → 42 µs, ÷2",
		"a\u00a0b\u3000c":                   "a b c",
		"n1\u3164\u115f\u00ad\U000e0041":    "n1",
		"\x1b":                              "",
		"a\x00b\x07c\x7fd":                  "abcd",
		"broken \xff utf8":                  "broken \ufffd utf8",
		"e\u0301\u0301\u0301\u0301":         "e",
		"\x1b[" + strings.Repeat("9", 5000): "",
	} {
		if got := String(in); got != want {
			t.Errorf("String(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestStringIsBounded(t *testing.T) {
	n := utf8.RuneCountInString(String(strings.Repeat("x", 3*MaxRunes)))
	if n != MaxRunes+1 {
		t.Errorf("%d runes", n)
	}
}

func TestMessageCleansNestedStrings(t *testing.T) {
	s := &falconv1.SnapshotReply{
		Job:   &falconv1.Job{Name: "gpt\x1b[2J"},
		Ranks: []*falconv1.RankView{{Device: "n1\x07.g0"}},
		Incidents: []*falconv1.Incident{{Verdict: &falconv1.Verdict{
			Devices:  []string{"ok", "n\u202e1"},
			Evidence: []*falconv1.Evidence{{Text: "a\nb"}},
		}}},
	}
	Message(s)
	got := s.Job.Name + "|" + s.Ranks[0].Device + "|" + s.Incidents[0].Verdict.Devices[1] + "|" +
		s.Incidents[0].Verdict.Evidence[0].Text
	if want := "gpt|n1.g0|n1|a b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMessageCleansKeys(t *testing.T) {
	r := &falconv1.Recovery{PhasesMs: map[string]float64{"detect": 1, "rest\x1b[2Jore": 2}}
	Message(r)
	if len(r.PhasesMs) != 2 || r.PhasesMs["restore"] != 2 {
		t.Errorf("phases %v", r.PhasesMs)
	}
}

func FuzzString(f *testing.F) {
	for _, s := range []string{"\x1b[31m", "\u009b1;2H", "\x1b]8;;http://x\x07y", "\xc2", "\xe2\x80\xae"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := String(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not valid UTF-8", got)
		}
		for _, r := range got {
			if unicode.IsControl(r) ||
				unicode.Is(unicode.Cf, r) ||
				unicode.Is(unicode.Bidi_Control, r) {
				t.Fatalf("%q still holds %U", got, r)
			}
		}
		if again := String(got); again != got {
			t.Fatalf("not stable: %q then %q", got, again)
		}
	})
}
