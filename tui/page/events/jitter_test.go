package events

import (
	"fmt"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Notes of jitter that follow each other are one line; nothing else is.
func TestJitterIsFolded(t *testing.T) {
	list := func(kinds ...string) (out []*falconv1.EventLine) {
		for i, k := range kinds {
			out = append(out, &falconv1.EventLine{
				Seq:  uint64(i + 1),
				Kind: k,
				Text: k,
			})
		}
		return out
	}
	for _, c := range []struct {
		in   []*falconv1.EventLine
		want string
	}{
		{nil, "[]"},
		{list("jitter"), "[1 jitter]"},
		{list("agent", "jitter", "agent", "jitter"), "[1 agent 2 jitter 3 agent 4 jitter]"},
		{
			list("agent", "jitter", "jitter", "jitter", "agent", "jitter", "jitter"),
			"[1 agent 4 jitter (and 2 before it) 5 agent 7 jitter (and 1 before it)]",
		},
	} {
		var got []string
		for _, e := range foldJitter(c.in) {
			got = append(got, fmt.Sprintf("%d %s", e.Seq, e.Text))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("folded to %v instead of %s", got, c.want)
		}
	}
	if got := withoutJitter(list("jitter", "agent", "jitter")); len(got) != 1 || got[0].Kind != "agent" {
		t.Errorf("other pages show %v", got)
	}
}
