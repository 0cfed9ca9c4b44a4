// Package trace decodes what other programs wrote into what the detectors
// read: communication calls from call logs, per-worker times, profile windows,
// Chrome and Kineto traces, and PyTorch flight-recorder dumps. Its subpackage judge
// gives verdicts on the last three; logs reads iteration times from training logs
// and tells all these files apart, by what column says their names mean.
//
// Decoders take an io.Reader and trust nothing in it: lines, rows, values and
// whole inputs are bounded by the Max constants, numbers must be finite, and
// what is malformed gives one sentence with its place, wrapping ErrMalformed or
// ErrTooLarge. Traces of any size are decoded event by event; what is kept of
// them is bounded. Of pickles only plain data is read: one that would import or
// call anything is refused. Nothing here opens a file, reads a clock or starts a
// goroutine.
package trace
