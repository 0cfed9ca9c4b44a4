package main

import (
	"fmt"
	"time"

	"github.com/failslow/falcon/backend/engine"
)

// Validation modes of falcon.yaml.
const (
	validationAuto   = "auto"   // the detector's tests hold the job without asking
	validationManual = "manual" // a test is advised; an approver asks for it
)

// validationConfig says when the job may be held for tests, and what they are.
// Zero values are the engine's defaults.
type validationConfig struct {
	Mode string `yaml:"mode"` // auto or manual

	engine.Validation `yaml:",inline"`
}

// Bounds of the settings, as those of a request by hand.
const (
	lifeMax     = time.Minute // the hook releases then, whatever is asked
	gemmSideMax = 16384
	messageMax  = 1 << 30
	repeatsMax  = 64
)

func (v validationConfig) validate() error {
	switch {
	case v.Mode != validationAuto && v.Mode != validationManual:
		return fmt.Errorf("%w: validation.mode is %q; set auto or manual", errUsage, v.Mode)
	case v.Life < 0 || v.Life > lifeMax:
		return fmt.Errorf("%w: validation.life is %s; a job can be held for %s at most",
			errUsage, v.Life, lifeMax)
	case v.CollectiveTimeout < 0 ||
		v.GEMMSide < 0 ||
		v.Repeats < 0 ||
		v.MessageBytes < 0 ||
		v.PerHour < 0 ||
		v.CoolDown < 0:
		return fmt.Errorf("%w: no value of validation can be negative", errUsage)
	case v.GEMMSide > gemmSideMax || v.MessageBytes > messageMax || v.Repeats > repeatsMax:
		return fmt.Errorf("%w: validation: gemm_n may be %d, message_bytes %d and repeats %d at most",
			errUsage, gemmSideMax, messageMax, repeatsMax)
	}
	return nil
}

func (v validationConfig) settings() engine.Validation {
	out := v.Validation
	out.Auto = v.Mode == validationAuto
	return out
}
