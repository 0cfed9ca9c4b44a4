package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/recovery/restart"
)

// policyConfig is the policy of falcon.yaml, or of a file of its own. What an
// approver sets in the console is in the journal and wins over the file until
// the file changes; then the file wins. A freeze stays in either case.
type policyConfig struct {
	falcon.Policy `yaml:",inline"`

	Rungs map[falcon.Rung]rungConfig `yaml:"rungs"`
}

// rungConfig is the policy of one rung, where a time to undo that is not set
// differs from zero.
type rungConfig struct {
	falcon.RungPolicy `yaml:",inline"`

	Undo *float64 `yaml:"undo_s"`
}

func (r rungConfig) policy() falcon.RungPolicy {
	out := r.RungPolicy
	if r.Undo != nil {
		out.Undo = *r.Undo
	}
	return out
}

func (p policyConfig) policy() falcon.Policy {
	out := p.Policy
	for r, v := range p.Rungs {
		if out.Rungs == nil {
			out.Rungs = map[falcon.Rung]falcon.RungPolicy{}
		}
		out.Rungs[r] = v.policy()
	}
	return out
}

// undoS3 is how long an approval of S3 can be withdrawn where the configuration
// does not say, in seconds.
const undoS3 = 10.0

// fillUndo gives S3 its time to undo. Labs have none but what their scenario
// says: scripts drive them.
func (p *policyConfig) fillUndo() {
	s3 := p.Rungs[falcon.RungS3]
	if s3.Undo != nil {
		return
	}
	undo := undoS3
	s3.Undo = &undo
	if p.Rungs == nil {
		p.Rungs = map[falcon.Rung]rungConfig{}
	}
	p.Rungs[falcon.RungS3] = s3
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
	return decodeStrict(b, &c.Policy, path)
}

// restartMost bounds the phases of a restart (S4): a longer one is stuck.
const restartMost = 24 * time.Hour

func checkRestart(r restart.Config) error {
	for key, v := range map[string]time.Duration{"leave": r.LeaveWait, "launch": r.LaunchWait} {
		if v < 0 || v > restartMost {
			return fmt.Errorf("%w: restart.%s is %s; give a time up to %s, 0s = the default",
				errUsage, key, v, restartMost)
		}
	}
	return nil
}
