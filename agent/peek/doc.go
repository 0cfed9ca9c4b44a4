// Package peek reads what a training process has printed, and where it stands, when a
// person asks for it.
//
// It guarantees that a read is bounded in bytes and lines, that it never waits for a pipe
// or a device, and that nothing but a regular file of the process's own user is read: the
// type and the owner are those of the file that is read from. What is returned is one
// printable line per line, without escape sequences and control characters, and with
// what looks like a secret masked as far as that can be recognised. It changes nothing
// at the process and sends no signal. It must not decide who may ask.
package peek
