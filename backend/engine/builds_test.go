package engine

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// An agent of another revision is named with both versions and what to do; one of the same
// is no concern.
func TestAgentOfAnotherRevisionIsNamed(t *testing.T) {
	for _, c := range []struct {
		protocol uint32
		severity int32
		says     string
	}{
		{falconv1.ProtocolRevision - 1, 1, "upgrade the agent, and agents before hooks"},
		{falconv1.ProtocolRevision + 1, 1, "upgrade the engine"},
		{falconv1.ProtocolRevision, 0, "(version 1%%2\\)"},
	} {
		k := agentCame(&falconv1.Hello{Version: "1%2\\\x1b", Protocol: c.protocol}, "job")
		if k.severity != c.severity ||
			!strings.Contains(k.one, c.says) ||
			!strings.Contains(k.many, "(version 1%%2") {
			t.Errorf("%d: %+v", c.protocol, k)
		}
		if strings.Count(k.one, "%s") != 1 || strings.Count(k.many, "%s") != 1 {
			t.Errorf("%d: the nodes do not stand once in %+v", c.protocol, k)
		}
	}
}

func TestFormatsOfAnAgentAreBounded(t *testing.T) {
	h := &falconv1.Hello{}
	for range 100 {
		h.Formats = append(h.Formats, &falconv1.Format{Name: "hook\x1b[2J", Number: 6})
	}
	views := formatViews(h)
	if len(views) != formatsMost ||
		views[0].GetName() != "hook[2J" ||
		views[0].GetNumber() != 6 {
		t.Errorf("%d formats, the first %v", len(views), views[0])
	}
}
