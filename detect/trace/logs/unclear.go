package logs

import (
	"errors"
	"fmt"
)

// ErrUnclear marks an ambiguous file: the sentence lists the choices and the flag
// to choose with.
var ErrUnclear = errors.New("trace: the file is ambiguous")

// unclear is an error that wraps ErrUnclear.
type unclear struct{ text string }

func (u unclear) Error() string { return "trace: " + u.text }

// Unwrap returns ErrUnclear.
func (u unclear) Unwrap() error { return ErrUnclear }

// ask returns an error that wraps ErrUnclear.
func ask(format string, args ...any) error {
	return unclear{fmt.Sprintf(format, args...)}
}
