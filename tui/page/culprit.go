package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// CulpritName is the name of a GPU, link or port of the history.
func CulpritName(c *falconv1.Culprit) string { return cmp.Or(c.GetDevice(), c.GetLink(), c.GetNic()) }

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
		if !slices.Contains(slices.Concat(inc.GetVerdict().GetDevices(), inc.GetVerdict().GetLinks(), inc.GetVerdict().GetNics()), name) {
			continue
		}
		switch before := c.GetTimes() - 1; {
		case c.GetLast() != inc.GetId():
			out = append(out, name+": culprit of "+s.CulpritAgo(c))
		case before > 0:
			out = append(out, fmt.Sprintf("%s: culprit of %d more incidents, score %.1f", name, before, c.GetScore()))
		}
	}
	return out
}

// DeviceHistory is what a device was named for last, or "".
func DeviceHistory(s *State, device string) string {
	for _, c := range s.Snap().GetCulprits() {
		if device != "" && c.GetDevice() == device {
			return device + ": culprit of " + s.CulpritAgo(c)
		}
	}
	return ""
}
