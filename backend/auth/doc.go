// Package auth says who a caller is and what that caller may do: certificates
// of the installation's own authority for machines, the socket's peer for
// people on the engine's machine, the process's own word for those whom its SSH
// front has let in.
//
// It guarantees that a role comes only from a certificate chain that TLS has
// verified, from what the kernel reports of a socket's peer, or from a pipe that
// this process made for an identity it has proven; never from anything the
// caller sends. TLS is 1.3 only, with certificates on both sides.
// A renewed certificate has the role and the name of the one before, whatever
// was asked for. Certificate files and the list of revoked certificates are
// followed without a restart; one that can't be used leaves what was read before
// in force.
// It owns no goroutines, and must not decide what a method needs: package rpc
// holds that table.
package auth
