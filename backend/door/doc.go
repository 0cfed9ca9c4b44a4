// Package door lets callers in from the network before any of their requests
// is read.
//
// It guarantees that callers who have not proven who they are hold a bounded
// number of descriptors, in all and by source address, and each for a bounded
// time; that a proven caller's role chooses the server that hears it before
// one byte of HTTP/2 is read; that one identity holds a bounded number of
// connections, the newest ones; that a certificate which has expired or is
// revoked ends what was let in with it; and that descriptors are held back for
// the rest of the process, such as the owner's socket.
//
// Door owns the accepting goroutine, one goroutine per unproven connection and
// one that looks at the certificates again; Close waits for them. It must not
// read requests and does not know methods: that is package rpc's.
package door
