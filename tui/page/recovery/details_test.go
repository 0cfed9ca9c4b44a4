package recovery

import (
	"strings"
	"testing"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/page"
)

// What a recovery gives up is rendered from its fields, whatever its reason says.
func TestStoryTellsWhatIsGivenUp(t *testing.T) {
	v := &falconv1.Recovery{
		Id:              "REC-0001",
		State:           string(falcon.RecoveryReplace),
		ResumeIteration: -1,
	}
	story := func() string {
		text := ""
		for _, l := range Details(&page.State{}, v, 100) {
			text += l.Text + "\n"
		}
		return text
	}
	if text := story(); strings.Contains(text, "Whole restart") || strings.Contains(text, "replicas") {
		t.Errorf("a recovery in place:\n%s", text)
	}
	v.Whole = true
	if text := story(); !strings.Contains(text,
		"Whole restart: no process is kept, all are started again\n") ||
		strings.Contains(text, "replicas") {
		t.Errorf("a whole restart:\n%s", text)
	}
	v.Shrink = &falconv1.Shrink{Of: 4, Kept: []int32{0, 2, 3}}
	if text := story(); !strings.Contains(text, "Fewer replicas: 3 of 4 stay and share the whole batch\n") {
		t.Errorf("with fewer replicas:\n%s", text)
	}
}
