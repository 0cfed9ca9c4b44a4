package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// Memory for tests is reserved unless somebody refuses it; the flag wins over the environment.
func TestReserve(t *testing.T) {
	for _, c := range []struct {
		args   []string
		before []string
		want   []string
		says   string
	}{
		{nil, []string{"A=1"}, []string{"A=1", "FALCON_TEST_MB=64"}, ""},
		{nil, []string{"RANK=0"}, []string{"RANK=0", "FALCON_TEST_MB=64"}, "64 MiB of each rank's GPU"},
		{nil, []string{"RANK=1"}, []string{"RANK=1", "FALCON_TEST_MB=64"}, ""},
		{nil, []string{"FALCON_TEST_MB=0", "RANK=0"}, []string{"FALCON_TEST_MB=0", "RANK=0"}, ""},
		{nil, []string{"FALCON_TEST_MB=128"}, []string{"FALCON_TEST_MB=128"}, ""},
		{
			[]string{"--test-mb", "0"},
			[]string{"FALCON_TEST_MB=128", "RANK=0"},
			[]string{"RANK=0", "FALCON_TEST_MB=0"},
			"",
		},
		{
			[]string{"--test-mb", "32"},
			[]string{"FALCON_TEST_MB=0", "RANK=0"},
			[]string{"RANK=0", "FALCON_TEST_MB=32"},
			"32 MiB",
		},
	} {
		flags := newFlagSet("run")
		r := addReserve(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		if err := r.check(flags); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		got := r.addTo(c.before)
		r.tell(got, &said)
		if !slices.Equal(got, c.want) ||
			!strings.Contains(said.String(), c.says) ||
			c.says == "" && said.Len() > 0 {
			t.Errorf("%v, %v: %v, %q", c.args, c.before, got, said.String())
		}
	}
	for _, mb := range []string{"-1", "4097"} {
		flags := newFlagSet("run")
		r := addReserve(flags)
		if err := flags.Parse([]string{"--test-mb", mb}); err != nil {
			t.Fatal(err)
		}
		if err := r.check(flags); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "up to 4096") {
			t.Errorf("%s: %v", mb, err)
		}
	}
}
