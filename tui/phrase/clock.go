package phrase

import (
	"cmp"
	"fmt"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Clock is a moment by the clock of a zone, nil = UTC: "14:00:12Z", "16:00:12 CEST", and
// with its day, "21 Nov 14:00Z", where now is 20 hours or more away from it.
func Clock(at, now time.Time, zone *time.Location) string {
	at = at.In(cmp.Or(zone, time.UTC))
	sign := " " + at.Format("MST")
	if at.Location() == time.UTC {
		sign = "Z"
	}
	if d := now.Sub(at); d >= 20*time.Hour || d <= -20*time.Hour {
		return at.Format("2 Jan 15:04") + sign
	}
	return at.Format("15:04:05") + sign
}

// Lasting is a length of time as one says it: "100 s", "8 min", "3 h 20 min", "2 days 3 h".
func Lasting(d time.Duration) string {
	switch s := int(max(0, d).Seconds()); {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%d days %d h", s/86400, s%86400/3600)
	}
}

// Again is which time an incident has come, and in how long, "3rd time in 2 min"; "" for the first.
func Again(i *falconv1.Incident) string {
	n := i.GetTimes()
	if n < 2 {
		return ""
	}
	text := Ordinal(int(n)) + " time"
	if first := i.GetFirstOnsetUnixNs(); first != 0 && i.GetOnsetUnixNs() > first {
		text += " in " + Lasting(time.Duration(i.GetOnsetUnixNs()-first))
	}
	return text
}

// Ordinal is a place in an order: "1st", "2nd", "3rd", "11th".
func Ordinal(n int) string {
	ends := [10]string{1: "st", 2: "nd", 3: "rd"}
	if end := ends[n%10]; end != "" && n/10%10 != 1 {
		return fmt.Sprint(n) + end
	}
	return fmt.Sprint(n) + "th"
}

// Since is when an incident began and for how long it lasted or lasts, "14:00:12Z (8 min)";
// "" where that is not known.
func Since(i *falconv1.Incident, now time.Time, zone *time.Location) string {
	if i.GetOnsetUnixNs() == 0 {
		return ""
	}
	at := time.Unix(0, i.GetOnsetUnixNs())
	end := now
	if i.GetEndUnixNs() != 0 {
		end = time.Unix(0, i.GetEndUnixNs())
	}
	return fmt.Sprintf("%s (%s)", Clock(at, now, zone), Lasting(end.Sub(at)))
}
