package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// What tests of GPUs and links need of each rank's GPU, in MiB, and the most that the hook takes.
const (
	testMB     = 64
	testMBMost = 4096
	// testVariable is where the hook reads how much it reserves.
	testVariable = "FALCON_TEST_MB"
)

// reserve is the memory that the hook is to take for tests.
type reserve struct {
	mb  int
	set bool // by the flag, which wins over the environment
}

func addReserve(flags *flag.FlagSet) *reserve {
	r := &reserve{}
	flags.IntVar(
		&r.mb,
		"test-mb",
		testMB,
		"MiB of each rank's GPU reserved for tests of GPUs and links while it runs; 0 = none, tests are refused (default: "+testVariable+", else 64)",
	)
	return r
}

// check takes note of whether the flag was given, and refuses what the hook can't reserve.
func (r *reserve) check(flags *flag.FlagSet) error {
	flags.Visit(func(f *flag.Flag) { r.set = r.set || f.Name == "test-mb" })
	if r.mb < 0 || r.mb > testMBMost {
		return fmt.Errorf("%w: --test-mb %d: give MiB up to %d, or 0 for none", errUsage, r.mb, testMBMost)
	}
	return nil
}

// addTo has the hook reserve the memory. What the environment says already stays, unless the flag
// was given.
func (r *reserve) addTo(env []string) []string {
	if !r.set && slices.ContainsFunc(env, isTestVariable) {
		return env
	}
	env = slices.DeleteFunc(slices.Clone(env), isTestVariable)
	return append(env, testVariable+"="+strconv.Itoa(r.mb))
}

func isTestVariable(kv string) bool {
	return strings.HasPrefix(kv, testVariable+"=")
}

// tell says once a job, from its first rank, what is taken and how to refuse it.
func (r *reserve) tell(env []string, to io.Writer) {
	i := slices.IndexFunc(env, isTestVariable)
	if i < 0 || !slices.Contains(env, "RANK=0") {
		return
	}
	if mb := strings.TrimPrefix(env[i], testVariable+"="); mb != "0" {
		fmt.Fprintf(to,
			"falcon-agent run: %s MiB of each rank's GPU are reserved for tests of GPUs and links while the job runs; --test-mb 0 reserves none\n",
			mb)
	}
}
