// Package triage is who looks after which incident: who acknowledged it, whose it is, until
// when its alerts are snoozed, and what people wrote about it.
//
// It guarantees that a snooze ends by itself: at its time, and before it once the incident has
// become worse. It takes time as an argument, starts no goroutine and does no I/O; what it
// holds is bounded. It must not change what is detected, planned, ordered or shown: it only
// says what an alert may leave out.
package triage
