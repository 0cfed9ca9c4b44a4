// Package detect is the fail-slow detector of one job as a pure machine
// (FALCON §4): iteration samples, profiles and telemetry go in; incidents and
// requests for profile windows come out.
//
// It guarantees: same inputs in the same order, same outputs. Time comes in as
// an argument. It starts no goroutine, does no I/O and holds no lock; the
// engine's one goroutine owns the machine.
//
// Use: Step each input, then take Ready, persist and act on it, then Advance.
package detect
