package phrase

import (
	"fmt"
	"strings"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Snoozed reports whether an incident's alerts are left out now. A snooze ends by its time
// also where no newer picture has come.
func Snoozed(v *falconv1.Triage, now time.Time) bool {
	return v.GetQuiet() && v.GetSnoozedUntilUnixNs() > now.UnixNano()
}

// Triage says who looks after an incident, "" where no one has said anything: "lee's,
// snoozed until 04:40:00Z by dana, note by lee: watch n1 (of 3)".
func Triage(v *falconv1.Triage, now time.Time, zone *time.Location) string {
	var parts []string
	if v.GetOwner() != "" {
		parts = append(parts, v.GetOwner()+"'s")
	}
	switch {
	case Snoozed(v, now):
		parts = append(parts, fmt.Sprintf("snoozed until %s by %s",
			Clock(time.Unix(0, v.GetSnoozedUntilUnixNs()), now, zone), v.GetSnoozedBy()))
	case v.GetSnoozedUntilUnixNs() > now.UnixNano():
		parts = append(parts, "its snooze has ended"+Prefixed(": the incident is ", v.GetWoke()))
	case v.GetAckedBy() != "":
		parts = append(parts, fmt.Sprintf("seen by %s at %s",
			v.GetAckedBy(), Clock(time.Unix(0, v.GetAckedUnixNs()), now, zone)))
	}
	if n := v.GetNotes(); len(n) > 0 {
		last := n[len(n)-1]
		text := fmt.Sprintf("note by %s: %s", last.GetBy(), last.GetText())
		if more := v.GetNoteCount(); more > 1 {
			text += fmt.Sprintf(" (newest of %d)", more)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
