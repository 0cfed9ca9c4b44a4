// Package record keeps what a console received in a file, and plays it back.
//
// A Writer takes states of a feed without ever holding the console up: its queue
// is bounded, what does not fit is counted, and the gap is marked in the file. A
// Tap puts a Writer between a feed and a console. Open reads a recording; a
// Player is a console's source made of one, with a clock of its own; it refuses
// every decision.
//
// The file is one line of text, then zstd of length-delimited protobuf
// (backend/api/falcon/v1/record.proto): a header, then frames. A frame holds the
// engine's reply as the wire carries it, ranks as columns, without the fields that
// have not changed; every so often one is whole. The file is flushed every second,
// so that one which was cut anywhere plays up to the cut. It has mode 0600 and a
// largest size. Ranks are rounded as on the wire, the chances of a series as
// finely as its page prints them; the rest is kept as it was received.
//
// A Writer, a Tap and a Player own one goroutine each, which Close waits for.
// The package draws nothing and asks no engine anything.
package record
