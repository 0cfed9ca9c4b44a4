package falconv1

import (
	"fmt"
	"strconv"
	"strings"
)

// The texts of RankState.exit: what a kernel told of a process's end, written by ExitStatus and
// ExitSignal, and read by ReadExit. Other texts are for people alone.
const (
	statusPrefix = "exited with status "
	signalPrefix = "killed by signal "
)

// ExitedNormally is the text of a process that ended with status 0.
const ExitedNormally = "exited normally"

// ExitedInOrder is the text where no kernel tells the status of a process that had given up all its
// communicators before.
const ExitedInOrder = "exited in order"

// ExitedWell reports whether an exit text is of a process that ended with success.
func ExitedWell(exit string) bool {
	return exit == ExitedNormally || exit == ExitedInOrder
}

// ExitStatus is the text of a process that exited.
func ExitStatus(status int) string {
	if status == 0 {
		return ExitedNormally
	}
	return statusPrefix + strconv.Itoa(status)
}

// ExitSignal is the text of a process that a signal ended.
func ExitSignal(number int, name string) string {
	return fmt.Sprintf("%s%d (%s)", signalPrefix, number, name)
}

// ReadExit reads what a text tells: the exit status, or the signal; false where it tells neither.
func ReadExit(text string) (status, signal int, known bool) {
	if text == ExitedNormally {
		return 0, 0, true
	}
	if rest, ok := strings.CutPrefix(text, statusPrefix); ok {
		n, err := strconv.Atoi(rest)
		return n, 0, err == nil
	}
	if rest, ok := strings.CutPrefix(text, signalPrefix); ok {
		number, _, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(number)
		return 0, n, err == nil && n > 0
	}
	return 0, 0, false
}
