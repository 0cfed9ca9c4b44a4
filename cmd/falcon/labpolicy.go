package main

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/failslow/falcon/agent/lab"
	"github.com/failslow/falcon/backend/engine"
)

// labPolicy is what --approve asks for, else what the scenario says, else what
// fits the place: on a terminal a person decides.
func labPolicy(sc lab.Scenario, approve string, screen bool) (policyConfig, error) {
	if approve == "" && sc.Policy != nil {
		return scenarioPolicy(sc)
	}
	byDefault := approve == ""
	if byDefault && screen {
		approve = "never"
	} else if approve == "" {
		approve = "s2"
	}
	p, ok := labPolicies[approve]
	if !ok {
		return p, fmt.Errorf("%w: --approve is %q, it must be never, s2, s3 or all", errUsage, approve)
	}
	if byDefault { // by default a lost rank does not wait for a person
		p.Recovery = labRecovery
	}
	return p, nil
}

// scenarioPolicy reads the scenario's policy as falcon.yaml's.
func scenarioPolicy(sc lab.Scenario) (policyConfig, error) {
	c := engineConfig{}
	err := scenarioPart("policy", sc.Policy, &c.Policy, &c)
	return c.Policy, err
}

// scenarioRecovery reads the scenario's times of a recovery likewise.
func scenarioRecovery(sc lab.Scenario, p policyConfig) (engine.Recovery, error) {
	c := engineConfig{Policy: p}
	err := scenarioPart("recovery", sc.Recovery, &c.Recovery, &c)
	return c.Recovery, err
}

// scenarioPart reads what a scenario says with the keys of falcon.yaml into its
// part of c, and checks that.
func scenarioPart(name string, said map[string]any, part any, c *engineConfig) error {
	b, err := yaml.Marshal(said)
	if err != nil {
		return err
	}
	if err := decodeStrict(b, part, "the scenario's "+name); err != nil {
		return err
	}
	filled := *c
	filled.fillDefaults()
	if err := filled.validate(); err != nil {
		return fmt.Errorf("the scenario's %w", err)
	}
	return nil
}
