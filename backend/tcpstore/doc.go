// Package tcpstore is a rendezvous store that PyTorch's TCPStore clients speak
// to: the processes of a job meet in it to build their groups.
//
// It guarantees, while a server is open: requests take effect one at a time, in
// the order in which each client sent them; a blocked wait costs one entry a
// key and no thread; what a client sends is bounded (key 8 KiB, value 8 MiB,
// 16 MiB a request) and costs memory only as it arrives; keys, bytes, waits and
// connections are bounded by Options. A request that breaks a bound or the
// protocol ends its own connection, with the reason in the log, and nobody
// else's. After Fence(g) has returned, nothing that a connection of an older
// generation sent takes effect any more, its keys are gone, and keys that name
// an older attempt (TORCHELASTIC_RESTART_COUNT) are refused. After Close no
// goroutine of the package is left.
//
// Both opcode layouts are served and told apart by the first message: newer
// clients begin with a magic number, PyTorch 1.13 and 2.0 do not (Layout). The
// callback channel of 1.13 (WATCH_KEY) is accepted as a connection but its one
// request is refused.
//
// Nobody is asked who he is: the protocol has no authentication. That is why a
// server listens on loopback only, unless Options say otherwise.
//
// A Server owns its goroutines: some that accept, one for each connection. It
// must not know what the keys mean, apart from the attempt in them, and it
// keeps nothing on disk: a job that loses its store builds its groups anew.
package tcpstore
