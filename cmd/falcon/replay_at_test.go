package main

import (
	"strings"
	"testing"
)

// A place that is none is refused, and so is one where lines have no place.
func TestReplayRefusesPlaces(t *testing.T) {
	for _, args := range [][]string{
		{"--headless", "--at", "25:99"},
		{"--headless", "--at", "50"},
		{"--picture", "/tmp/never.png", "--at", "25:99"},
	} {
		code, _, errs := command(t, append([]string{"replay", labRecording}, args...)...)
		if code != 2 || !strings.Contains(errs, "--at") {
			t.Errorf("%v: %d, %s", args, code, errs)
		}
	}
}
