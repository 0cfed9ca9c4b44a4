package engine

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// An agent that follows another job says nothing of this one's ranks: that is reported when it comes.
func TestAnAgentOfAnotherJobIsTold(t *testing.T) {
	hello := func(job string) *falconv1.Hello {
		return &falconv1.Hello{
			Job:      job,
			Version:  "1",
			Protocol: falconv1.ProtocolRevision,
		}
	}
	if k := agentCame(hello("gpt-70"), "gpt-70b"); k.severity == 0 ||
		!strings.Contains(k.one, `follows job "gpt-70", and this engine's is "gpt-70b"`) {
		t.Errorf("%+v", k)
	}
	for _, job := range []string{"", "gpt-70b"} {
		if k := agentCame(hello(job), "gpt-70b"); k.severity != 0 {
			t.Errorf("%q: %+v", job, k)
		}
	}
}
