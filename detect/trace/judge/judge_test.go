package judge

import (
	"encoding/json"
	"strings"
	"testing"
)

// checkNumbers checks that a report is valid JSON, without NaN or infinities, or that
// the error has one line.
func checkNumbers(t *testing.T, judge func() (any, error)) {
	t.Helper()
	report, err := judge()
	if err != nil {
		if strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Fatalf("%q", err)
		}
		return
	}
	if _, err := json.Marshal(report); err != nil {
		t.Fatal(err)
	}
}
