package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// trainTools puts programs of a job into a folder of the path: an interpreter without torch,
// one with it, a wrapper.
func trainTools(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, text := range map[string]string{
		"python3":    "#!/bin/sh\necho\n",
		"python3.99": "#!/bin/sh\necho /there/torch\n",
		"start":      "#!" + folder + "/python3.99\n",
		"wrapper":    "#!/bin/sh\nexec \"$@\"\n",
		"by-env":     "#!/usr/bin/env python3.99\n",
		"broken":     "",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o700); err != nil { //nolint:gosec // programs
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":/usr/bin:/bin")
	return folder
}

func TestTrainTakesAnyCommandLine(t *testing.T) {
	at := trainTools(t)
	for line, want := range map[string][]string{
		"python3 train.py --steps 5":           {at + "/python3", "train.py", "--steps", "5"},
		"  wrapper  python3   train.py":        {at + "/wrapper", "python3", "train.py"},
		"cd job && exec python3 train.py":      {shell, "-c", "cd job && exec python3 train.py"},
		"LR=0.1 python3 train.py | tee log":    {shell, "-c", "LR=0.1 python3 train.py | tee log"},
		`python3 -c 'print("a b")'`:            {shell, "-c", `python3 -c 'print("a b")'`},
		"for k in 1 2; do python3 $k.py; done": {shell, "-c", "for k in 1 2; do python3 $k.py; done"},
	} {
		if got, err := trainWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	}
	for line, says := range map[string]string{
		" ":                   "--train wants a command",
		"nowhere-to-be-found": "nowhere-to-be-found",
		"python3 'unclosed":   "the shell can't read the line",
		"cd job && (python3":  "the shell can't read the line",
	} {
		_, err := trainWords(line)
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestPyTorchOfACommandLine(t *testing.T) {
	at := trainTools(t)
	for _, c := range []struct{ line, named, want string }{
		{"python3.99 train.py", "", "/there/torch"},
		{"cd job && exec python3.99 train.py", "", "/there/torch"},
		{"wrapper " + at + "/python3.99 train.py", "", "/there/torch"},
		{"start --fast", "", "/there/torch"},
		{"wrapper by-env", "", "/there/torch"},
		{"wrapper anything", at + "/python3.99", "/there/torch"},
		{"python3 train.py", at + "/python3.99", "/there/torch"},
	} {
		if got, err := findPyTorch(c.line, c.named); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	for _, c := range []struct{ line, named string }{
		{"wrapper anything", ""},
		{"python3 train.py", ""},
		{"start", "no-such-python"},
	} {
		_, err := findPyTorch(c.line, c.named)
		if err == nil || !strings.Contains(err.Error(), "--train-python") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
