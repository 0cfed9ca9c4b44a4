package phrase

import (
	"fmt"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// HangHeadline says since when a job stands still, and whom it waits for.
func HangHeadline(h *falconv1.Hang, now time.Time) string {
	text := fmt.Sprintf("stands still for %s: ",
		Seconds(now.Sub(time.Unix(0, h.GetSinceUnixNs()))))
	return text + HangNamed(h) + fmt.Sprintf(", %d of %d ranks wait",
		h.GetWaiting(), h.GetWorld())
}

// HangNamed says in a few words who holds the job up.
func HangNamed(h *falconv1.Hang) string {
	var named []int32
	for _, p := range h.GetCulprits() {
		named = append(named, p.GetRanks()...)
	}
	if len(named) == 0 {
		return "no rank can be named"
	}
	return "held up by " + Ranks(named, 4)
}

// HangParts are those who are named, else those of whom no rank can be named alone.
func HangParts(h *falconv1.Hang) []*falconv1.HangPart {
	if len(h.GetCulprits()) > 0 {
		return h.GetCulprits()
	}
	return h.GetCandidates()
}
