package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A small swarm: all nodes connect, all samples are taken, the slow rank is named, and nothing is
// ordered that would harm the job.
func TestLabSwarm(t *testing.T) {
	if testing.Short() {
		t.Skip("a swarm takes a third of a minute")
	}
	var out, errs bytes.Buffer
	c := exec.CommandContext(
		t.Context(),
		filepath.Join("..", "..", "bin", "falcon"),
		strings.Fields(
			"lab swarm --nodes 16 --period 200ms --for 18s --slow-rank 77 --slow-from 15 --slow-factor 1.5 --json",
		)...,
	)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var r swarmResult
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if r.Connected != 16 ||
		r.Ranks != 128 ||
		r.TakenPerS < r.SamplesPerS*0.8 ||
		r.Dropped != 0 ||
		len(r.Harm) != 0 ||
		r.EngineCores <= 0 ||
		r.RSSMB <= 0 {
		t.Errorf("%+v", r)
	}
	if !slices.ContainsFunc(r.Incidents, func(i string) bool {
		return strings.Contains(i, "ranks [77]")
	}) ||
		len(r.Incidents) != 1 {
		t.Errorf("incidents: %v", r.Incidents)
	}
}
