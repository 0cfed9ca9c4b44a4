// Package pickle reads Python pickles that hold plain data: dicts, lists,
// tuples, sets, texts, bytes, numbers, booleans and None, in protocols 0 to 5.
//
// It guarantees: nothing is imported and nothing is called. Every opcode that
// would do so in Python ends the reading with one sentence that wraps
// ErrRefused. What is malformed wraps ErrMalformed, what passes a bound wraps
// ErrTooLarge. Memory is bounded by MaxHeld whatever the pickle says of its own
// sizes, and JSON's output by the caller's limit, so that shared references
// can't blow up.
//
// It must not grow a way to build objects. Nothing here opens a file, reads a
// clock or starts a goroutine.
package pickle
