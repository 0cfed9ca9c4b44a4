package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// docs/runbook.md says what to do about whatever an operator can be shown: a
// new cause, state or fault without a line there fails here.
func TestRunbookIsWhole(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, c := range []falcon.Cause{
		falcon.CauseGPU, falcon.CauseCPU, falcon.CauseNetwork, falcon.CauseFacility,
		falcon.CauseNotHardware, falcon.CauseUnknown,
	} {
		if !strings.Contains(text, "\n### "+string(c)+"\n") {
			t.Errorf("no section for the cause %s", c)
		}
	}
	for _, word := range runbookWords() {
		if !strings.Contains(text, "`"+word+"`") {
			t.Errorf("nothing is said about %q", word)
		}
	}
}

func runbookWords() []string {
	words := []string{
		"steady", "learning", "slow", "recovering", "restarting", "lost", "waiting for agents",
		"finished",
	}
	for _, s := range []falcon.RecoveryState{
		falcon.RecoveryProposed, falcon.RecoverySuspend, falcon.RecoveryReplace,
		falcon.RecoveryTable, falcon.RecoveryCollect,
		falcon.RecoveryRejoin, falcon.RecoveryResumed,
		falcon.RecoveryFailed, falcon.RecoveryDenied, falcon.RecoveryCancelled,
	} {
		words = append(words, string(s))
	}
	for _, k := range []falcon.FaultKind{
		falcon.FaultExit, falcon.FaultNode, falcon.FaultFrozen, falcon.FaultHang,
		falcon.FaultDevice,
	} {
		words = append(words, string(k))
	}
	for _, r := range falcon.Reasons() {
		words = append(words, string(r))
	}
	return words
}
