// Package keeper runs a rendezvous store in a process of its own: what clients do
// to the store, to its memory and to its descriptors, they do not do to the
// engine.
//
// The store's process is the same program again (Options.Command). It inherits
// two descriptors: the socket that the keeper listens on, and one end of a socket
// pair on which the keeper sends fences and reads answers. No other process has the
// other end.
//
// It guarantees: the address stays the same for the life of the keeper, and
// clients that connect while no store runs wait in the socket's queue. A store
// that ends is started again, after a pause that doubles to restartMost. It ends
// with the keeper's process however that ends (parent-death signal, and the end
// of the socket pair). After Fence(g) has returned without an error no store of
// an older generation serves: it has answered, or it was killed. A store that is
// started later begins with the newest generation. Trouble says at any time, and
// without blocking, why nothing is served.
//
// A store keeps nothing on disk. When its process ends, its clients are
// disconnected and the keys of the generation are lost: a job that was meeting
// fails to, and its rejoin is tried again in a new generation. Ranks that train
// already use no keys until they build a group.
//
// A Keeper owns the goroutine that starts stores and the one that reads their
// answers; Close ends both, and the store. It must not read or write the socket
// that it listens on.
package keeper
