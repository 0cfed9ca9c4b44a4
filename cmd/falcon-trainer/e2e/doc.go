// Package e2e proves the trainer as a whole: it runs the built binary, all
// ranks as processes on this machine and unpaced, against a deliberately
// simple trainer in plain Go. Recoveries are played through the real hook by a
// deliberately simple agent and planner. It contains tests only; they skip, with the reason,
// where the stand-in libraries in bin/lib are not built.
package e2e
