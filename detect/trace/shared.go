package trace

import "fmt"

// Malformed is a sentence that wraps ErrMalformed, for packages below this one;
// line counts from 1, 0 for the whole input.
func Malformed(line int, format string, args ...any) error {
	return malformed(line, format, args...)
}

// TooLarge is a sentence that wraps ErrTooLarge.
func TooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}

// Clip shortens and cleans a field for a message on a terminal.
func Clip(s string) string { return clipField(s) }
