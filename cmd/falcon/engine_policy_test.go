package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

const policyText = `mode: auto
cap: S3
owner: maria
rungs:
  S3: {approval: auto, countdown_s: 30, per_hour: 2}
hours: 22:00-06:00
variants: [restart]
`

// writeIn makes a file in a directory and gives its path.
func writeIn(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPolicyFileIsThePolicySection(t *testing.T) {
	dir := t.TempDir()
	writeIn(t, dir, "policy.yaml", policyText)
	section := "policy:\n  " + strings.ReplaceAll(strings.TrimSpace(policyText), "\n", "\n  ") + "\n"
	var got []falcon.Policy
	for _, text := range []string{
		section,
		"policy_file: policy.yaml\n",
		"policy_file: " + filepath.Join(dir, "policy.yaml") + "\n",
	} {
		cfg, err := loadEngineConfig(writeIn(t, dir, "falcon.yaml", text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got = append(got, cfg.Policy.policy())
	}
	want := falcon.Policy{
		Mode:  falcon.ModeAuto,
		Cap:   falcon.RungS3,
		Owner: "maria",
		Hours: "22:00-06:00",
		Rungs: map[falcon.Rung]falcon.RungPolicy{falcon.RungS3: {
			Approval:  falcon.ApprovalAuto,
			Countdown: 30,
			PerHour:   2,
			Undo:      undoS3,
		}},
		Variants: []falcon.Variant{falcon.VariantRestart},
	}
	for i, p := range got {
		if !p.Equal(want) {
			t.Errorf("%d: %+v", i, p)
		}
	}
}

func TestPolicyFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ policy, config, want string }{
		"unknown key": {"mode: auto\ncaps: S2\n", "policy_file: p.yaml\n", "caps"},
		"both": {
			"mode: auto\n",
			"policy_file: p.yaml\npolicy: {mode: approve}\n",
			"keep one of them",
		},
		"no owner": {"mode: auto\ncap: S4\n", "policy_file: p.yaml\n", "owner"},
		"missing":  {"", "policy_file: nowhere.yaml\n", "no policy file"},
		"unknown rung": {
			"mode: auto\ncap: S2\nrungs: {S7: {approval: auto}}\n",
			"policy_file: p.yaml\n",
			"S7",
		},
		"long restarts": {"mode: auto\n", "restart: {leave: 100h}\n", "restart.leave"},
	} {
		writeIn(t, dir, "p.yaml", c.policy)
		_, err := loadEngineConfig(writeIn(t, dir, "falcon.yaml", c.config))
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An approval of S3 can be withdrawn unless the configuration says that it
// can't; a second approver is asked for by name.
func TestUndoIsShipped(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]falcon.RungPolicy{
		"":                            {Undo: 10},
		"mode: auto\ncap: S2\n":       {Undo: 10},
		"rungs: {S3: {per_hour: 2}}":  {Undo: 10, PerHour: 2},
		"rungs: {S3: {undo_s: 0}}":    {},
		"rungs: {S3: {undo_s: 25.5}}": {Undo: 25.5},
		"rungs: {S3: {second: true}}": {Undo: 10, Second: true},
	} {
		writeIn(t, dir, "p.yaml", text)
		cfg, err := loadEngineConfig(writeIn(t, dir, "falcon.yaml", "policy_file: p.yaml\n"))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		p := cfg.Policy.policy()
		if p.Rungs[falcon.RungS3] != want || p.Rungs[falcon.RungS4] != (falcon.RungPolicy{}) {
			t.Errorf("%q: %+v", text, p.Rungs)
		}
	}
}

// Whatever stands in a policy file is a policy or one refusal.
func FuzzPolicyFile(f *testing.F) {
	f.Add([]byte(policyText))
	f.Add([]byte("rungs: {S2: {countdown_s: .nan}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c engineConfig
		if err := decodeStrict(b, &c.Policy, "p.yaml"); err != nil {
			if !errors.Is(err, errUsage) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		c.fillDefaults()
		if err := c.validate(); err != nil && !errors.Is(err, errUsage) {
			t.Error(err)
		}
	})
}
