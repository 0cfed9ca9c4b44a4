package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/failslow/falcon/tui/clean"
)

// chooseTries bounds how often a number that is none of the list is asked for again.
const chooseTries = 3

// canAsk reports whether a person can answer: a script gets the list as an error instead.
func canAsk() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) &&
		term.IsTerminal(int(os.Stderr.Fd())) &&
		stdinReadable()
}

// chooseFrom lists what there is and takes the number of one; ok is false where none was chosen.
func chooseFrom(in io.Reader, out io.Writer, what string, list []string) (chosen string, ok bool) {
	fmt.Fprintf(out, "%d %s run here:\n", len(list), what)
	for i, x := range list {
		fmt.Fprintf(out, "  %d  %s\n", i+1, clean.String(x))
	}
	lines := bufio.NewScanner(in)
	for range chooseTries {
		fmt.Fprintf(out, "which one? (1 to %d, or enter for none) ", len(list))
		if !lines.Scan() {
			fmt.Fprintln(out)
			return "", false
		}
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			return "", false
		}
		if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(list) {
			return list[n-1], true
		}
	}
	return "", false
}

// askWhich asks at the terminal which of several is meant.
func askWhich(what string, list []string) (chosen string, ok bool) {
	if len(list) < 2 || !canAsk() {
		return "", false
	}
	return chooseFrom(os.Stdin, os.Stderr, what, list)
}
