// Package pickle reads Python pickles that hold plain data: dicts, lists,
// tuples, sets, texts, bytes, numbers, booleans and None, in protocols 0 to 5.
//
// It guarantees: nothing is imported and nothing is called. An opcode that
// would do so in Python ends the reading with one sentence that wraps
// ErrRefused. A malformed pickle wraps ErrMalformed, one over a limit wraps
// ErrTooLarge. The values of a pickle take at most 17 times its size plus 1 MiB,
// whatever sizes it declares. JSON is written as it is read, at most 64 times as
// long as the pickle.
//
// It must not grow a way to build objects. Nothing here opens a file, reads a
// clock or starts a goroutine.
package pickle
