package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/failslow/falcon/agent/lab/hollow"
)

const shell = "/bin/sh"

// shellSigns are what makes a command line more than words: a shell has to read it.
const shellSigns = "|&;<>()$`\\\"'*?[]#~=%{}!\n"

// interpreterName is what an interpreter's file is called.
var interpreterName = regexp.MustCompile(`^python[0-9.]*$`)

// trainWords is the command of one rank: the words of a plain line, else a shell with the line.
func trainWords(line string) ([]string, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil, fmt.Errorf("%w: --train wants a command", errUsage)
	}
	if strings.ContainsAny(line, shellSigns) {
		if out, err := exec.Command(shell, "-n", "-c", line).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: --train: the shell can't read the line: %s",
				errUsage, strings.TrimSpace(string(out)))
		}
		return []string{shell, "-c", line}, nil
	}
	program, err := exec.LookPath(words[0])
	if err != nil {
		return nil, fmt.Errorf("%w: --train: %w", errUsage, err)
	}
	if words[0], err = filepath.Abs(program); err != nil {
		return nil, fmt.Errorf("--train: %w", err)
	}
	return words, nil
}

// findPyTorch is the package's folder. The stand-ins are made for one PyTorch: that of the
// interpreter that is named, or of the first that the line names, or that the script begins with,
// or that is found as python3.
func findPyTorch(line, named string) (torch string, err error) {
	program := named
	if program == "" {
		program = interpreterOf(line)
	}
	out, err := exec.Command(program, "-c", findTorch).Output()
	if err != nil {
		return "", fmt.Errorf(
			"%w: can't ask %s for PyTorch: %w; name the job's interpreter with --train-python",
			errUsage, program, err,
		)
	}
	if torch = strings.TrimSpace(string(out)); torch == "" {
		return "", fmt.Errorf(
			"%w: %s has no package torch; name the job's interpreter with --train-python, or install it: `pip install --no-deps torch` and its small dependencies are enough, as the CUDA libraries are replaced",
			hollow.ErrTorch, program,
		)
	}
	return torch, nil
}

func interpreterOf(line string) string {
	words := strings.FieldsFunc(line, func(r rune) bool {
		return strings.ContainsRune(" \t\n;&|()\"'`", r)
	})
	for _, w := range words {
		if !interpreterName.MatchString(filepath.Base(w)) {
			continue
		}
		if program, err := exec.LookPath(w); err == nil {
			return program
		}
	}
	for _, w := range words {
		if program, err := exec.LookPath(w); err == nil {
			if found := interpreterOfScript(program); found != "" {
				return found
			}
		}
	}
	return "python3"
}

// interpreterOfScript is what a script's first line names, where that is an interpreter.
func interpreterOfScript(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	first := bufio.NewScanner(f)
	if !first.Scan() {
		return ""
	}
	rest, ok := strings.CutPrefix(first.Text(), "#!")
	if !ok {
		return ""
	}
	for _, w := range strings.Fields(rest) {
		if interpreterName.MatchString(filepath.Base(w)) {
			return w
		}
	}
	return ""
}
