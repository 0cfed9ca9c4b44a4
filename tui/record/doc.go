// Package record keeps what a console received in a file, and plays it back.
//
// A Writer takes pictures (feed states) from a console without ever holding it
// up: its queue is bounded, what doesn't fit is counted, and the gap is marked
// in the file. A Tap puts a Writer between a feed and a console. Open reads a
// recording; a Player is a console's source made of one, with a clock of its
// own; it refuses every decision.
//
// The file is one line of text, then zstd of length-delimited protobuf
// (backend/api/falcon/v1/record.proto): a header, then frames, of which some
// are whole and the rest hold what changed. It is flushed every second, so
// that a file which was cut anywhere plays up to the cut. It has mode 0600 and
// a largest size. Everything is kept as it was received, except that in
// the tables of ranks, nodes and ports fractions are rounded finer than any
// page shows them, and times of day to a millisecond; the
// chances of a series are rounded as finely as its page prints them.
//
// A Writer, a Tap and a Player own one goroutine each, which Close waits for.
// The package draws nothing and asks no engine anything.
package record
