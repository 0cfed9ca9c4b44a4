// Package store is a proxy of the job's rendezvous store on one node: the node's
// training processes connect to it on loopback as they would to the store itself
// (PyTorch's TCPStore protocol, both layouts), and a few connections to the store
// serve them all.
//
// It guarantees: what one client sends takes effect in its order; a blocked wait
// for the same keys costs one connection upstream however many clients wait, and
// its cancellation by one client is not felt by the others; clients, waits and
// the size of a request are bounded (Options, MaxRequest), and so is the memory that
// requests, answers and waits hold together (Options.Budget, 64 MiB; 4 KiB of each
// are not counted); a client makes its first request within 30 s, and a request is
// complete within 10 s; a client that breaks a bound or the protocol loses its own
// connection, and what it was to be answered is read and thrown away. Where the
// store ends a connection (it fences an older generation, or is closed), every
// client that it served is disconnected too, and meets the new store by connecting
// again.
//
// Clients that share a connection share its fate: what the store refuses one of
// them, beyond the limits that are checked here, ends all of them. No client is asked
// who he is, so that it listens on loopback only, and the way to the store must
// be as private as the store's own.
//
// A Proxy owns its goroutines: one that accepts, one for each client and one for
// each wait; Close ends them and waits. It must not know what the keys mean and
// keeps none.
package store
