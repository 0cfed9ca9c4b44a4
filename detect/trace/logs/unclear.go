package logs

import (
	"errors"
	"fmt"
)

// ErrUnclear marks a file that can be read in several ways, or does not say in
// which: its sentence lists them and says how to choose.
var ErrUnclear = errors.New("trace: the file is ambiguous")

// unclear is such a sentence.
type unclear struct{ text string }

func (u unclear) Error() string { return "trace: " + u.text }

// Unwrap makes it an ErrUnclear.
func (u unclear) Unwrap() error { return ErrUnclear }

// ask makes the sentence.
func ask(format string, args ...any) error { return unclear{fmt.Sprintf(format, args...)} }
