package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
)

// CulpritName is the name of a GPU, link or port of the history.
func CulpritName(c *falconv1.Culprit) string {
	return cmp.Or(c.GetDevice(), c.GetLink(), c.GetNic())
}

// CulpritAgo is the newest incident that named a culprit: "INC-0001, 5 min ago".
func (s *State) CulpritAgo(c *falconv1.Culprit) string {
	if c.GetLasts() {
		return c.GetLast() + ", which lasts"
	}
	return c.GetLast() + ", " + Ago(s.EngineNow().Sub(time.Unix(0, c.GetLastUnixNs())))
}

// Ago is how long ago something was.
func Ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// Histories describe what the culprits of an incident were named for before it:
// "n1.g0: culprit of INC-0001, 5 min ago". Nothing is said of those that only the
// incident itself names.
func (s *State) Histories(inc *falconv1.Incident) []string {
	var out []string
	for _, c := range s.Snap().GetCulprits() {
		name := CulpritName(c)
		if !slices.Contains(
			slices.Concat(
				inc.GetVerdict().GetDevices(),
				inc.GetVerdict().GetLinks(),
				inc.GetVerdict().GetNics(),
			),
			name,
		) {
			continue
		}
		switch before := c.GetTimes() - 1; {
		case c.GetLast() != inc.GetId():
			out = append(out, name+": culprit of "+s.CulpritAgo(c))
		case before > 0:
			out = append(out, fmt.Sprintf("%s: culprit of %d more incidents, score %.1f",
				name, before, c.GetScore()))
		}
	}
	return out
}

// DeviceHistory is what a device was named for last, and whether it is barred, or "".
func DeviceHistory(s *State, device string) string {
	var parts []string
	for _, c := range s.Snap().GetCulprits() {
		if device != "" && c.GetDevice() == device {
			parts = append(parts, "culprit of "+s.CulpritAgo(c))
		}
	}
	if text := BarText(s, device); text != "" {
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return device + ": " + strings.Join(parts, ", ")
}

// BarText is who keeps a node, or a device or its node, from being used as a spare, or "".
func BarText(s *State, name string) string {
	for _, b := range s.Snap().GetBars() {
		n := b.GetName()
		if name != "" && (n == name || n == string(falcon.Device(name).Node())) {
			return "barred " + BarWords(s, b)
		}
	}
	return ""
}

// BarWords are a bar's owner, times and reason.
func BarWords(s *State, b *falconv1.Bar) string {
	now := s.EngineNow()
	return fmt.Sprintf("by %s since %s until %s: %s",
		b.GetBy(), phrase.Clock(time.Unix(0, b.GetSinceUnixNs()), now, s.Zone),
		phrase.Clock(time.Unix(0, b.GetUntilUnixNs()), now, s.Zone), b.GetReason())
}
