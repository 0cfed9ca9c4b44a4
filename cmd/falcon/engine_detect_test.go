package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/failslow/falcon/backend/engine"
	tests "github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
)

// Values that the detector could only panic on, or that mean nothing, are
// refused with their key and what to set instead.
func TestDetectSettingsAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "falcon.yaml")
	for set, say := range map[string]string{
		"run_length: 0.5":         "from 1 to 1e12",
		"run_length: .nan":        "from 1 to 1e12",
		"threshold: 3":            "between 0 and 1",
		"threshold: .nan":         "between 0 and 1",
		"verify: -0.1":            "0.1 for a change of 10 %",
		"verification: own":       "paper or adaptive",
		"floor: 2":                "0.02 for a change of 2 %",
		"false_alarms: 1":         "2e-5 for one in 50,000",
		"warm_up: 2":              "from 3 to 256",
		"suspect: 0.9":            "above 1",
		"validate_tries: -2":      "-1 for none",
		"peak_iteration_ms: .inf": "milliseconds",
		"peak_iteration_ms: -1":   "milliseconds",
		"throughput: 1.2":         "between 0 and 1",
		"watch_every: -5":         "-1 for never",
		"watch_over: 1":           "above 1",
		"watch_steps: -1":         "from 1 to 1000",
		"watch_often: 3":          "watch_often",
	} {
		if err := os.WriteFile(path, []byte("detect: {"+set+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		key, _, _ := strings.Cut(set, ":")
		code, _, errs := command(t, "serve", "--config", path)
		if code != 2 ||
			!strings.Contains(errs, say) ||
			!strings.Contains(errs, key) ||
			strings.Contains(errs, "\n") {
			t.Errorf("%s: exit %d %q, want 2 with %q", set, code, errs, say)
		}
	}
}

func TestDetectSettingsReachTheDetector(t *testing.T) {
	if got := loadText(t, "detect: {}").Detect; !reflect.DeepEqual(got, detect.DefaultConfig()) {
		t.Errorf("nothing set: %+v", got)
	}
	want := detect.DefaultConfig()
	want.Tracker.Filter.RunLength = 100
	want.Tracker.Filter.Threshold = 0.8
	want.Tracker.Verify = 0.2
	want.Tracker.WarmUp = 20
	want.Rules.Suspect = 1.3
	want.Tracker.Verification = "adaptive"
	want.Tracker.Floor = 0.01
	want.Tracker.FalseAlarms = 1e-6
	want.Validate.Tries = -1
	want.PeakIterationMs = 900
	want.Throughput = 0.7
	want.Watch.Every = -1
	want.Watch.Over = 2
	want.Watch.Steps = 5
	cfg := loadText(t,
		`detect: {run_length: 100, threshold: 0.8, verify: 0.2, warm_up: 20, suspect: 1.3, validate_tries: -1,
  verification: adaptive, floor: 0.01, false_alarms: 0.000001,
  peak_iteration_ms: 900, throughput: 0.7, watch_every: -1, watch_over: 2, watch_steps: 5}`)
	if got := cfg.Detect; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The example shows every key of falcon.yaml with its default, and none that
// there is not; docs/cluster.md shows the same.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```yaml\n"+engineExample+"```") {
		t.Error("docs/cluster.md does not show the example that falcon serve --help shows")
	}
	cfg := loadText(t, engineExample)
	want := detect.DefaultConfig()
	want.Rules.Suspect = 1.1 // unset it means that (peer.Rules)
	if got := cfg.Detect; !reflect.DeepEqual(got, want) {
		t.Errorf("what the example shows of detect are not the defaults: %+v", got)
	}
	defaults := engine.Validation{
		Auto:         true,
		Life:         tests.LifeDefault,
		GEMMSide:     tests.GEMMSideDefault,
		Repeats:      tests.RepeatsDefault,
		MessageBytes: tests.MessageBytesDefault,
		PerHour:      engine.PerHourDefault,
		CoolDown:     engine.CoolDownDefault,
	}
	if got := cfg.Validation.settings(); got != defaults {
		t.Errorf("what the example shows of validation are not the defaults: %+v", got)
	}
	for _, key := range yamlKeys(reflect.TypeFor[engineConfig]()) {
		if !strings.Contains(engineExample, key+":") {
			t.Errorf("the example does not show the key %s", key)
		}
	}
}

func yamlKeys(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("yaml")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			panic(f.Name + " of " + t.String() + " has no YAML name")
		}
		if name != ",inline" {
			out = append(out, name)
		}
		if f.Type.Kind() == reflect.Struct {
			out = append(out, yamlKeys(f.Type)...)
		}
	}
	return out
}

func loadText(t *testing.T, text string) engineConfig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "falcon.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := loadEngineConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
