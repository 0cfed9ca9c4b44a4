// Package tcpstore is a rendezvous store that PyTorch's TCPStore clients speak
// to: the processes of a job meet in it to build their groups.
//
// It guarantees, while a server is open: requests take effect one at a time, in
// the order in which each client sent them; a blocked wait costs one entry a
// key and no thread; what a client sends is bounded (key 64 KiB, value 8 MiB,
// 16 MiB a request) and costs memory only as it arrives. A request that breaks a
// bound or the protocol ends its own connection, with the reason in the log.
// After Fence(g) has returned, nothing that a connection of an older
// generation sent takes effect any more, its keys are gone, and keys that name
// an older attempt (TORCHELASTIC_RESTART_COUNT) are refused. A second after the last
// client that has made a request, all keys are gone (Options.Linger): a job that is
// started again by hand finds an empty store, as it would with one of its own. Where
// no two clients were there at a time, no job has met, and the keys stay for a minute
// (Options.LingerAlone). After Close no goroutine of the package is left.
//
// # What differs from PyTorch's own server
//
// TestOperationsBesidePyTorch compares the two. An add to a value that is no number,
// such as " 41x", or whose sum leaves 64 bits is refused here: PyTorch's reads the digits
// that it finds, or wraps around. Keys that are longer than PyTorch's newer server takes
// are taken. Keys are dropped when everybody has left, which PyTorch's server need not
// do: it ends with its job.
//
// # Memory
//
// One budget (Options.Budget) pays for everything: keys, values, waits, requests
// that are on their way in, answers that are on their way out, and 8 KiB for each
// connection. What does not fit is refused. A value is charged until the last
// answer that sends it is out, even when its key is gone. Large charges (over
// 16 KiB) leave a quarter of the budget free, so that a store full of large
// values still serves clients that only meet. A process that is the store's alone
// and calls LimitMemory stays below the budget and Overhead.
//
// A connection must make its first request within 30 s, and complete a request
// within 10 s of the moment when it was seen to be incomplete. After its first
// request it may be silent, or wait, for as long as it likes. Where connections
// or their memory run out, the oldest one without a request makes way for a new
// one; where memory for requests runs out, the oldest incomplete one does. A
// client that has completed a request and is not sending one is never ended for
// others. Connections are bounded in total and, from other machines, by address.
//
// Who can reach the store and follows the protocol can still fill it with small
// keys: the protocol authenticates no client. That is why a server listens on
// loopback only, unless Options say otherwise.
//
// # Layouts
//
// Both opcode layouts are served and distinguished by the first message: newer
// clients begin with a magic number, PyTorch 1.13 and 2.0 do not (Layout). The
// callback channel of 1.13 (WATCH_KEY) is accepted as a connection but its one
// request is refused.
//
// A Server owns its goroutines: some that accept, one that ends late
// connections, one for each connection. It must not know what the keys mean,
// apart from the attempt in them, and it keeps nothing on disk: a job that loses
// its store builds its groups again. Package keeper runs one in a process of its
// own.
package tcpstore
