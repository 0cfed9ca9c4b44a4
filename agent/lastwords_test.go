package agent

import (
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

func TestTellingLine(t *testing.T) {
	long := "ValueError: " + strings.Repeat("x", 2*wordsMost)
	for _, c := range []struct {
		name, want string
		lines      []string
	}{
		{
			"a traceback",
			"ValueError: boom",
			[]string{
				"step 41", "Traceback (most recent call last):", `  File "t.py", line 1`,
				"ValueError: boom", "srun: error: task 3",
			},
		},
		{
			"a traceback of PyTorch's",
			"ValueError: boom",
			[]string{
				"[rank3]: Traceback (most recent call last):",
				`[rank3]:   File "t.py", line 1`,
				"[rank3]: [rank3]: ValueError: boom",
				"[rank3]:[W1129 12:00:00.0] Warning: an error",
			},
		},
		{
			"the last of two errors",
			"torch.OutOfMemoryError: CUDA out of memory",
			[]string{"KeyError: 'a'", "During handling ...", "torch.OutOfMemoryError: CUDA out of memory"},
		},
		{
			"a device's error",
			"CUDA error: an illegal memory access",
			[]string{"CUDA error: an illegal memory access", "Failed to clean up"},
		},
		{"anything that sounds like one", "assertion x > 0", []string{"assertion x > 0", "bye"}},
		{"the last line", "bye", []string{"step 1", "", "bye", ""}},
		{"beside a record for programs", "KeyError: 1", []string{"KeyError: 1", `{"rank": 1, "why": "an error"}`}},
		{"no record for programs", "failed to load", []string{"failed to load", `{"rank": 1, "why": "an error"}`}},
		{"nothing", "", []string{"", ""}},
		{"a long line", long[:wordsMost], []string{long}},
	} {
		got, tells := tellingLine([]*falconv1.PeekPart{{
			Source: "stderr",
			Lines:  c.lines,
		}})
		if got != c.want || tells == (c.name == "the last line" || c.name == "nothing") {
			t.Errorf("%s: %q, of an error %t", c.name, got, tells)
		}
	}
	both := []*falconv1.PeekPart{
		{Source: "stderr", Lines: []string{"KeyError: 1"}},
		{Source: "stdout", Lines: []string{"ValueError: 2"}},
	}
	if got, _ := tellingLine(both); got != "KeyError: 1" {
		t.Errorf("of two outputs: %q", got)
	}
}

// What a process printed says nothing of why others have killed it; an abort of its own it may explain.
func TestWordsOfAKilledProcess(t *testing.T) {
	for _, c := range []struct{ exit, line, want string }{
		{"exited with status 1", "bad --config", "bad --config"},
		{"killed by signal 9 (SIGKILL)", "  Variable._execution_engine.run_backward(", ""},
		{"killed by signal 9 (SIGKILL)", "ncclRemoteError: a peer of the generation before has ended", ""},
		{
			"killed by signal 6 (SIGABRT)",
			"terminate called after throwing an instance of 'c10::Error'",
			"terminate called after throwing an instance of 'c10::Error'",
		},
		{"killed by signal 11 (SIGSEGV)", "step 41", ""},
	} {
		parts := []*falconv1.PeekPart{{Source: "stderr", Lines: []string{c.line}}}
		if got := wordsOf(&falconv1.RankState{Exit: c.exit}, parts); got != c.want {
			t.Errorf("%s, %q: %q", c.exit, c.line, got)
		}
	}
}

// A process that ended has its line sent once more with its end; one that is dropped meanwhile, too.
func TestLastWordsFollowTheEnd(t *testing.T) {
	q := questions{words: make(chan lastWords, 2)}
	kept := &process{path: "kept", dead: true}
	set := newProcessSet()
	set.addProcess(kept)
	q.words <- lastWords{"kept", &falconv1.RankState{Rank: 1, Exit: "exited with status 1"}, "ValueError: a"}
	q.words <- lastWords{"dropped", &falconv1.RankState{Rank: 2}, "ValueError: b"}
	ends := q.takeWords(set)
	if len(ends) != 2 ||
		ends[0].GetSaid() != "ValueError: a" ||
		ends[0].GetExit() != "exited with status 1" ||
		ends[1].GetSaid() != "ValueError: b" {
		t.Fatalf("%v", ends)
	}
	if kept.said != "ValueError: a" {
		t.Errorf("a later report of its end lacks the line: %q", kept.said)
	}
}
