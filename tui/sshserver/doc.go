// Package sshserver serves the console over SSH.
//
// It guarantees that a session begins only with a proven key or certificate
// and carries its role and name to the engine's own table, where they are
// enforced; that there is no shell, no forwarding, no agent, no subsystem, and
// no command but Falcon's own words; that no session can hold up another or
// the engine: each has its own client, program and buffers, waits only for its
// own link, and is closed when that has been stuck for Limits.Stall.
//
// Server owns the listener and every goroutine; Close ends all sessions, gives
// their terminals back and waits. The package must not decide what a role may
// do, nor hold state of the job.
package sshserver
