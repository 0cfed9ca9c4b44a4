package phrase

import (
	"testing"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestHangHeadline(t *testing.T) {
	part := []*falconv1.HangPart{{Ranks: []int32{2, 3}}}
	for want, h := range map[string]*falconv1.Hang{
		"stands still for 12 s: held up by ranks 2-3, 6 of 8 ranks wait": {
			SinceUnixNs: 1e9,
			Waiting:     6,
			World:       8,
			Culprits:    part,
		},
		"stands still for 12 s: no rank can be named, 8 of 8 ranks wait": {
			SinceUnixNs: 1e9,
			Waiting:     8,
			World:       8,
			Candidates:  part,
		},
	} {
		got := HangHeadline(h, time.Unix(13, 0))
		if got != want || len(HangParts(h)) != 1 {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
