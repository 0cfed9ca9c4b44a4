package alert

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/tui/clean"
)

// Channel is how a terminal takes desktop notifications.
type Channel int

// The channels. OSC 9;4, which some terminals take for progress and others
// for a notification, is never written.
const (
	None   Channel = iota
	OSC9           // iTerm2 and others: a body only
	OSC777         // rxvt-unicode, foot, WezTerm, Ghostty: title and body
	OSC99          // kitty and others: with an id, so that a newer note replaces an older one
)

// Probe asks whether the terminal knows OSC 99: then it answers with the same id and p=?.
var Probe = ansi.DesktopNotification("", "i="+probeID, "p=?")

const probeID = "falcon-probe"

// Answered reports whether a sequence that the terminal sent answers the probe.
func Answered(seq string) bool {
	body, ok := strings.CutPrefix(seq, "\x1b]99;")
	return ok && strings.Contains(body, "i="+probeID) && strings.Contains(body, "p=?")
}

// Probing reports whether a terminal may be asked: the multiplexers and consoles
// that swallow or print such questions are not.
func Probing(env func(string) string) bool {
	term := env("TERM")
	for _, bad := range []string{"dumb", "linux", "screen", "tmux"} {
		if strings.HasPrefix(term, bad) {
			return false
		}
	}
	return term != "" && env("TMUX") == "" && env("STY") == ""
}

// Choose is the channel of a terminal that has not answered the probe.
func Choose(env func(string) string) Channel {
	if !Probing(env) {
		return None
	}
	switch env("TERM_PROGRAM") {
	case "iTerm.app":
		return OSC9
	case "WezTerm", "ghostty":
		return OSC777
	}
	switch term := env("TERM"); {
	case strings.HasPrefix(term, "rxvt-unicode"), strings.HasPrefix(term, "foot"),
		term == "xterm-ghostty", term == "wezterm":
		return OSC777
	case term == "xterm-kitty":
		return OSC99
	}
	return None
}

// Bounds of a note, in characters.
const (
	titleMax = 60
	bodyMax  = 200
)

// Encode is the bytes of an alert for a terminal; empty for nothing.
func Encode(a Alert, ch Channel) string {
	out := ""
	if a.Bell {
		out = "\a"
	}
	if a.Note == nil {
		return out
	}
	title := plainText(a.Note.Title, titleMax)
	body := plainText(a.Note.Body, bodyMax)
	switch ch {
	case None:
	case OSC9: // begins with the title, so that no body is taken for a number of a subcommand
		out += ansi.Notify("Falcon: " + strings.TrimPrefix(title, "Falcon: ") + " – " + body)
	case OSC777:
		out += ansi.URxvtExt("notify", withoutSemicolons(title), withoutSemicolons(body))
	case OSC99:
		id := "i=falcon-" + safeToken(a.Note.ID)
		out += ansi.DesktopNotification(title, id, "d=0", "p=title") +
			ansi.DesktopNotification(body, id, "d=1", "p=body")
	}
	return out
}

// plainText is text without anything that could end or steer a sequence.
func plainText(s string, most int) string {
	s = clean.String(s)
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return s
}

// withoutSemicolons keeps text in one parameter of OSC 777.
func withoutSemicolons(s string) string {
	return strings.ReplaceAll(s, ";", ",")
}

// safeToken is an id of OSC 99: letters, digits and a few signs.
func safeToken(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9',
			strings.ContainsRune("_-+.", r):
			return r
		}
		return '-'
	}, plainText(s, titleMax))
}
