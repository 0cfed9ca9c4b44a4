package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/engine"
)

// policyConfig is the policy of falcon.yaml, or of a file of its own. What an
// approver sets in the console is in the journal and wins over it, until it
// changes: then it is the newer word (a freeze stays all the same).
type policyConfig struct {
	Mode  string `yaml:"mode"`
	Cap   string `yaml:"cap"`
	Owner string `yaml:"owner"`

	Rungs     map[string]rungConfig `yaml:"rungs"`
	Hours     string                `yaml:"hours"`
	AllowDrop bool                  `yaml:"allow_drop"`
	Variants  []string              `yaml:"variants"`

	Recovery falcon.RecoveryPolicy `yaml:"recovery"`
}

// rungConfig is falcon.RungPolicy, where a time to undo that is not set is not
// the same as none.
type rungConfig struct {
	Approval  string   `yaml:"approval"`
	Countdown float64  `yaml:"countdown_s"`
	PerHour   int      `yaml:"per_hour"`
	Undo      *float64 `yaml:"undo_s"`
	Second    bool     `yaml:"second"`
}

func (r rungConfig) policy() falcon.RungPolicy {
	out := falcon.RungPolicy{Approval: r.Approval, Countdown: r.Countdown, PerHour: r.PerHour, Second: r.Second}
	if r.Undo != nil {
		out.Undo = *r.Undo
	}
	return out
}

// undoS3 is how long an approval of S3 can be withdrawn where the configuration
// does not say, in seconds.
const undoS3 = 10.0

// fillUndo gives S3 its time to undo. Labs have none but what their scenario
// says: scripts drive them.
func (p *policyConfig) fillUndo() {
	s3 := p.Rungs[string(falcon.RungS3)]
	if s3.Undo != nil {
		return
	}
	undo := undoS3
	s3.Undo = &undo
	if p.Rungs == nil {
		p.Rungs = map[string]rungConfig{}
	}
	p.Rungs[string(falcon.RungS3)] = s3
}

// policyBytesMax bounds a policy file.
const policyBytesMax = 1 << 20

// loadPolicy reads the policy file that the configuration names; dir is where
// relative names begin.
func (c *engineConfig) loadPolicy(dir string) error {
	if c.PolicyFile == "" {
		return nil
	}
	if !reflect.DeepEqual(c.Policy, policyConfig{}) {
		return fmt.Errorf("%w: policy and policy_file are both set: keep one of them", errUsage)
	}
	path := c.PolicyFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no policy file %s: write one, or take policy_file out", errUsage, path)
	}
	if err != nil {
		return fmt.Errorf("%w: policy_file: %w", errUsage, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, policyBytesMax+1))
	if err != nil {
		return fmt.Errorf("%w: policy_file: %w", errUsage, err)
	}
	if len(b) > policyBytesMax {
		return fmt.Errorf("%w: policy file %s is larger than %d bytes", errUsage, path, policyBytesMax)
	}
	return c.Policy.decode(b, path)
}

// decode reads a policy strictly: an unknown key would be a rule that nobody
// keeps.
func (p *policyConfig) decode(b []byte, path string) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(p); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s: %s", errUsage, path, yamlSentence(err))
	}
	return nil
}

func (c *engineConfig) policy() falcon.Policy {
	p := c.Policy
	out := falcon.Policy{
		Mode: falcon.Mode(p.Mode), Cap: falcon.Rung(p.Cap), Owner: p.Owner, Hours: p.Hours, AllowDrop: p.AllowDrop,
		Recovery: p.Recovery,
	}
	for r, v := range p.Rungs {
		if out.Rungs == nil {
			out.Rungs = map[falcon.Rung]falcon.RungPolicy{}
		}
		out.Rungs[falcon.Rung(r)] = v.policy()
	}
	for _, v := range p.Variants {
		out.Variants = append(out.Variants, falcon.Variant(v))
	}
	return out
}

// restartConfig bounds the phases of a restart (S4); zero values are the
// engine's defaults.
type restartConfig struct {
	Leave  time.Duration `yaml:"leave"`  // from the checkpoint to the last process's end
	Launch time.Duration `yaml:"launch"` // from the launch to all ranks at work
}

// restartMax bounds both: longer is a job that somebody has to look at.
const restartMax = 24 * time.Hour

func (r restartConfig) check() error {
	for key, v := range map[string]time.Duration{"leave": r.Leave, "launch": r.Launch} {
		if v < 0 || v > restartMax {
			return fmt.Errorf("%w: restart.%s is %s; give a time up to %s, 0s = the default", errUsage, key, v, restartMax)
		}
	}
	return nil
}

func (r restartConfig) engine() engine.Restart {
	return engine.Restart{LeaveWait: r.Leave, LaunchWait: r.Launch}
}
