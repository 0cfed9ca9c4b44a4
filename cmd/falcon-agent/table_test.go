package main

import (
	"bytes"
	"testing"

	"github.com/failslow/falcon/agent/table"
	"github.com/failslow/falcon/recovery/ranktable"
)

// What the engine's side writes as a delta, the agent's side applies, although
// neither knows the other.
func TestDeltasOfTheEngineAreUnderstood(t *testing.T) {
	one := []byte("{\n\"n1\",\n\"n2\",\n\"n3\"\n}\n")
	for name, two := range map[string][]byte{
		"a server replaced": []byte("{\n\"n1\",\n\"spare\",\n\"n3\"\n}\n"),
		"one less":          []byte("{\n\"n1\",\n\"n3\"\n}\n"),
		"nothing":           one,
	} {
		s := table.New("")
		if err := s.Put(4, one); err != nil {
			t.Fatal(err)
		}
		change, err := ranktable.Diff(one, 4, two, 6).Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(6, 4, change); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Put(6, bytes.ToUpper(two)); err == nil {
			t.Errorf("%s: the generation is not the delta's", name)
		}
	}
}
