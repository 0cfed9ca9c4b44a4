// Package trace decodes what other programs wrote into what the detectors
// read: iteration times from CSV files and from Megatron or NeMo logs, and
// communication calls from call logs.
//
// Decoders take an io.Reader and trust nothing in it: lines, rows and the
// whole input are bounded by MaxLine, MaxRows and MaxBytes, numbers must be
// finite, and what is malformed gives one sentence with its line number,
// wrapping ErrMalformed or ErrTooLarge. Nothing here opens a file, reads a
// clock or starts a goroutine.
package trace
