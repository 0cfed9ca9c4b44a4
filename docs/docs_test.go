package docs

import (
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// Every cause has a section that says what to do now, as plain text.
func TestSections(t *testing.T) {
	for _, c := range []falcon.Cause{
		falcon.CauseGPU, falcon.CauseCPU, falcon.CauseNetwork, falcon.CauseFacility,
		falcon.CauseNotHardware, falcon.CauseUnknown, "",
	} {
		text := strings.Join(Section(string(c)), "\n")
		if len(text) < 200 || !strings.Contains(text, "Now") {
			t.Errorf("%q: %s", c, text)
		}
	}
	for _, topic := range Topics() {
		lines := Section(topic)
		if len(lines) < 3 {
			t.Errorf("%s: %q", topic, lines)
		}
		for _, l := range lines {
			if strings.Contains(l, "](") ||
				strings.Contains(l, "**") ||
				strings.HasPrefix(l, "|") ||
				strings.HasPrefix(l, "#") {
				t.Errorf("%s: %q", topic, l)
			}
		}
	}
	if Section("nonsense") != nil {
		t.Error("there is a section about nonsense")
	}
	got := Section("gpu_degradation")
	if !strings.Contains(got[len(got)-1], "mitigate.run_iterations") ||
		strings.Contains(strings.Join(got, ""), "cpu_contention") {
		t.Errorf("the section ends elsewhere: %q", got)
	}
}
