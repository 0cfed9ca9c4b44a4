package phrase

import (
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestTestedIn(t *testing.T) {
	fine := &falconv1.LinkResult{Link: "n1-n2", Ratio: 1.02}
	v := &falconv1.Validation{
		Id: "VAL-0002",
		Gemm: []*falconv1.GemmResult{{Device: "n1.g0", Ratio: 1.84, Slow: true}, {
			Device: "n2.g0",
			Ratio:  1,
		}},
	}
	for want, links := range map[string][]*falconv1.LinkResult{
		"": {{Link: "n2-n3", Slow: true}},
		"tested by VAL-0002: 1.02 x the usual, as fast as usual": {fine, {Link: "n1-n2", Ratio: 1}},
		"tested by VAL-0002: 8.30 x the usual, slow": {
			fine,
			{Link: "n1-n2", Ratio: 8.3, Slow: true},
			{Link: "n1-n2", Unjudged: falcon.TooShort},
		},
		"tested by VAL-0002, not judged: " +
			string(falcon.TooShort): {fine, {Link: "n1-n2", Unjudged: falcon.TooShort}},
		"tested by VAL-0002, which failed: the peer is gone": {
			fine,
			{Link: "n1-n2", Err: "the peer is gone"},
		},
	} {
		v.Links = links
		if got := TestedIn(v, "n1-n2"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for name, want := range map[string]string{
		"n1.g0": "tested by VAL-0002: 1.84 x the median, slow",
		"n2.g0": "tested by VAL-0002: 1.00 x the median, as fast as the others",
		"n3.g0": "",
	} {
		if got := TestedIn(v, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
