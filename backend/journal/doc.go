// Package journal is the engine's durable memory: an append-only log of small
// records in one bbolt file, chained by SHA-256 so that a changed, dropped or
// reordered record is found.
//
// It guarantees that Append returns only after the whole batch is on stable
// storage (one transaction, one fsync), that a batch is there whole or not at
// all, and that Verify names the first record that does not follow from its
// predecessor. The head hash is to be noted elsewhere by whoever must notice
// that the newest records were cut off together with the head.
//
// It owns no goroutines; a Journal is safe for one user at a time. It must not
// know what the records mean, and must not hold samples.
package journal
