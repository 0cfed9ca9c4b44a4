package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/tui/record"
)

// labRecording is a run of the scenario gpu-throttle in the lab, recorded by
// falcon lab run --headless --approve s2 --record FILE.
const labRecording = "testdata/gpu-throttle.frec"

// The recording of a real run tells what happened: a GPU found, S2 kept, undone
// after the relief.
func TestReplayTellsTheLabsStory(t *testing.T) {
	r, err := openRecording(labRecording)
	if err != nil || r.Cut != "" {
		t.Fatalf("%v, cut %q", err, r.Cut)
	}
	var out bytes.Buffer
	if err := replayLines(&out, r); err != nil {
		t.Fatal(err)
	}
	rest := out.String()
	for _, want := range []string{
		"[iteration 47] INC-0001: slow since iteration 40",
		"INC-0001: GPU degradation on n1.g0 (rank 2)",
		"INC-0001: S2 (shift micro-batches) in force from iteration 52",
		"INC-0001: S2 (shift micro-batches) kept: 253 ms → 161 ms measured (-36%), predicted 163 ms",
		"INC-0001: the fault has cleared",
		"INC-0001: S2 (shift micro-batches) reverted from iteration 191",
		"INC-0001: closed",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("%q does not follow in\n%s", want, out.String())
		}
		rest = after
	}
	d := describe(r)
	if d.Incidents[0] != "INC-0001" || d.LastIteration < 250 || d.Lost != 0 {
		t.Errorf("%+v", d)
	}
	if info, err := os.Stat(labRecording); err != nil || info.Size() > 1<<20 {
		t.Errorf("%v, %d bytes", err, info.Size())
	}
}

func TestReplayDrawsAPicture(t *testing.T) {
	r, err := record.Open(labRecording)
	if err != nil {
		t.Fatal(err)
	}
	var drawn [][]byte
	for range 2 {
		path := filepath.Join(t.TempDir(), "p.png")
		if err := drawPicture(r, replayOptions{
			speed:   1,
			at:      "50",
			theme:   "dark",
			picture: pictureOptions{file: path, size: "80x24", page: "ranks"},
		}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		drawn = append(drawn, b)
	}
	if !bytes.HasPrefix(drawn[0], []byte("\x89PNG")) || !bytes.Equal(drawn[0], drawn[1]) {
		t.Error("two pictures of one moment differ")
	}
}
