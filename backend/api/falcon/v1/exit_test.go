package falconv1_test

import (
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// What is written of an end is read again.
func TestExitTextsAreRead(t *testing.T) {
	for status := range 256 {
		got, signal, known := falconv1.ReadExit(falconv1.ExitStatus(status))
		if got != status || signal != 0 || !known {
			t.Errorf("status %d: %d, signal %d, %t", status, got, signal, known)
		}
	}
	for signal := 1; signal < 65; signal++ {
		status, got, known := falconv1.ReadExit(falconv1.ExitSignal(signal, "SIGX"))
		if got != signal || status != 0 || !known {
			t.Errorf("signal %d: %d, status %d, %t", signal, got, status, known)
		}
	}
	for _, text := range []string{
		"", falconv1.ExitedInOrder, "ended", "exited with status x", "killed by signal ",
		"killed by signal -9 (x)", "ended with wait status 0x7f",
	} {
		if status, signal, known := falconv1.ReadExit(text); known {
			t.Errorf("%q: status %d, signal %d", text, status, signal)
		}
	}
}
