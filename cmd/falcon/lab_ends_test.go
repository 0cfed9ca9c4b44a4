package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/lab"
)

var labEnds = flag.Int("lab-ends", 0,
	"play so many jobs to their end on agents that ask no kernel how a process ended")

// TestEndsWithoutExitInformation plays jobs that recover once and come to their
// end, where the kernel tells nobody how a process ended, as those before 6.15,
// and every second time without a file descriptor of the process, as those before
// 5.3: each must end once.
func TestEndsWithoutExitInformation(t *testing.T) {
	if *labEnds == 0 {
		t.Skip("long: run make ends")
	}
	t.Setenv("FALCON_NO_EXIT_INFO", "1")
	once := 0
	for i := range *labEnds {
		t.Setenv("FALCON_NO_PIDFD", strings.Repeat("1", i%2))
		sc := recoverScenario(
			fmt.Sprintf("ends-%d", i+1),
			recoverLayouts[1].shape,
			1,
			lab.Event{AtIteration: pointAt, Kill: fmt.Sprintf("rank %d", i%8)},
		)
		file := reportFile(reportDir(t), sc.Name)
		out, err := playScenario(t, sc, file, "--no-reference")
		r, readErr := readReport(file)
		switch {
		case err != nil || readErr != nil:
			t.Errorf("%s: %v, %v\n%s", sc.Name, err, readErr, out)
		case len(r.Recoveries) != 1 ||
			len(r.Restarts) != 0 ||
			len(r.Iterations) != sc.Iterations:
			t.Errorf("%s: %d recoveries, %d restarts, %d of %d iterations\n%s",
				sc.Name, len(r.Recoveries), len(r.Restarts), len(r.Iterations), sc.Iterations, out)
		default:
			once++
		}
	}
	t.Logf("%d of %d jobs recovered once and ended once", once, *labEnds)
}
