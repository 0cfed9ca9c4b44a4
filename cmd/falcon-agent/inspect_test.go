package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/ring"
)

func TestInspectTellsOfPauses(t *testing.T) {
	const now = 10e9
	for _, c := range []struct {
		pause     ring.Pause
		workspace uint64
		want      string
	}{
		{ring.Pause{}, 0, "never paused; held 0s in all; no memory for tests"},
		{
			ring.Pause{
				Wanted:    7,
				UntilNs:   12e9,
				Seen:      7,
				State:     ring.PauseQuiet,
				TrappedNs: 9.5e9,
			},
			64 << 20,
			"pause 7 in force, ends in 2s at the latest; pause 7 is quiet, held 500ms; held 0s in all; 64 MiB for tests",
		},
		{
			ring.Pause{Seen: 7, State: ring.PauseRefused, Reason: 2, ReleasedNs: 9e9},
			1 << 20,
			"no pause in force; pause 7 is refused, held 0s (a group of calls reaches across the cut); held 0s in all; 1 MiB for tests",
		},
		{
			ring.Pause{Wanted: 1, UntilNs: 1 << 62},
			0,
			"pause 1 in force, ends in 1m0s at the latest; held 0s in all; no memory for tests",
		},
	} {
		got := describePause(c.pause, ring.Control{TestWorkspace: c.workspace}, now)
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if got := describeGate(ring.Comm{Calls: 5, Cut: 9, Armed: true}); got != "gate lets 4 more through" {
		t.Error(got)
	}
	if got := describeGate(ring.Comm{Calls: 5}); got != "gate open" {
		t.Error(got)
	}
}

func TestInspectTellsOfWaitingAndEnds(t *testing.T) {
	for want, c := range map[string]ring.Control{
		"whether it waits for its peers is not known": {WaitingSinceNs: 5e9},
		"does not wait for its peers": {
			Coverage: ring.CoverWaiting,
		},
		"has waited for its peers for 2s": {
			Coverage:       ring.CoverWaiting,
			WaitingSinceNs: 5e9,
		},
		"does not wait for its peers; ended with status 3": {
			Coverage: ring.CoverWaiting,
			Ended:    ring.End{AtNs: 1, Status: 3},
		},
		"whether it waits for its peers is not known; has finished its training": {
			Ended: ring.End{AtNs: 1, Status: -1},
		},
	} {
		if got := describeWaiting(c, 7e9); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestInspectTellsOfBinding(t *testing.T) {
	for want, b := range map[string]ring.Binding{
		"linked to NCCL, version 2.28.9": {How: ring.BoundNeeded, NCCL: 22809},
		"NCCL passes by the hook":        {How: ring.BoundBypassed},
		"no NCCL call so far":            {},
	} {
		if got := b.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestInspectTellsOfPlacements(t *testing.T) {
	at := ring.Place{
		Order:     3,
		Iteration: 41,
		Rank:      5,
		StepNs:    [4]int64{1e6, 2e6, 3e6, 4e6},
		Bytes:     12e6,
	}
	for _, c := range []struct {
		place   ring.Place
		ok      bool
		control ring.Control
		want    string
	}{
		{ring.Place{}, true, ring.Control{}, "holds the rank that it was started with"},
		{ring.Place{}, false, ring.Control{}, "is being placed"},
		{
			at,
			true,
			ring.Control{Generation: 2, ResumeIteration: 60},
			"holds rank 5 from iteration 41 on by placement 3 (10ms, 12 MB received); started by launch 2; its newest ordered checkpoint resumes with iteration 60",
		},
	} {
		got := describePlacement(func() (ring.Place, bool) {
			return c.place, c.ok
		}, c.control)
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestInspectTellsOfRecoveries(t *testing.T) {
	held := falcon.RankHold{Steps: [2]int64{6, 7}}
	for _, c := range []struct {
		park     ring.Park
		ok       bool
		rejoined ring.Rejoined
		control  ring.Control
		want     string
	}{
		{ring.Park{}, true, ring.Rejoined{}, ring.Control{}, "communicators of generation 0; not parked"},
		{
			ring.Park{},
			false,
			ring.Rejoined{},
			ring.Control{GenerationNow: 1},
			"communicators of generation 1; is parking",
		},
		{
			ring.Park{On: true, Generation: 3, Tag: 7, Hold: held},
			true,
			ring.Rejoined{Generation: 2, Iteration: 5, GroupsNs: 3e6, StateNs: 9e6},
			ring.Control{GenerationNow: 2, SuspendWanted: 3, Suspended: 3},
			"communicators of generation 2; suspended for generation 3, obeyed up to 3; parked in generation 3 with step tag 7, holds steps [6 7]; rejoined in generation 2 at iteration 5, status 0 (groups 3ms, state 9ms)",
		},
		{
			ring.Park{On: true, Generation: 3, Status: ring.ParkJoin},
			true,
			ring.Rejoined{},
			ring.Control{GenerationNow: 3},
			"communicators of generation 3; replaced, parked in generation 3",
		},
	} {
		got := describeRecovery(func() (ring.Park, bool) {
			return c.park, c.ok
		}, func() (ring.Rejoined, bool) { return c.rejoined, true }, c.control)
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// A corrupt, half-made or absent file gets one clear sentence and a non-zero
// exit; the file's content never reaches the terminal.
func TestInspectRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"corrupt header": {
			[]string{"inspect", file("c", bytes.Repeat([]byte{0x1b, 0xff}, 5000))},
			1,
			"corrupt",
		},
		"empty":     {[]string{"inspect", file("e", nil)}, 1, "ring:"},
		"half made": {[]string{"inspect", file("h", make([]byte, 5<<20))}, 1, "not ready"},
		"absent":    {[]string{"inspect", filepath.Join(dir, "absent")}, 1, "no such file"},
		"no file":   {[]string{"inspect"}, 2, "name one file"},
	} {
		var out, errs bytes.Buffer
		code := runCommand(c.args, &out, &errs)
		text := strings.TrimSpace(errs.String())
		if code != c.code ||
			!strings.Contains(text, c.want) ||
			strings.ContainsAny(text, "\n\x1b") ||
			out.Len() != 0 {
			t.Errorf("%s: exit %d, stderr %q, stdout %q", name, code, text, out.String())
		}
	}
}
