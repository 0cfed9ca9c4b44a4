// Package journal is the engine's durable memory: an append-only log of small
// records in one bbolt file, chained by SHA-256 so that a changed, dropped or
// reordered record is found.
//
// It guarantees:
//
//   - Append returns only after the whole batch is on stable storage, and a
//     batch is there whole or not at all.
//   - The head (number and hash of the newest record) is also written, and
//     synced, to a second file beside the journal before Append returns. A
//     journal that ends before that head has lost records that were
//     acknowledged, and is refused: no rolled-back page and no older copy of the
//     file is taken for the newest state. After a crash between the two writes
//     the journal is one batch ahead of its head file, and that is accepted.
//   - Compact replaces all records by a snapshot in one transaction. The
//     snapshot names the head that it replaces and a digest of the older records
//     that are kept for the audit, so the chain still proves everything that is
//     left.
//   - Every file names its format. A newer one is refused, an older one is
//     converted in place by one transaction.
//   - Failures of disks are named as what they are (ErrFull, ErrReadOnly, ErrIO,
//     ErrPermission, ErrLocked), never as damage. After a failed Append the same
//     batch may be appended again: it is stored once.
//
// A loss is not noticed where the journal and its head file are both replaced
// by older copies of the same moment, or are both deleted: whoever must notice
// that has to note the head elsewhere.
//
// It owns no goroutines. A Journal is safe for one user at a time, but for
// Backup, which may run beside the others. The package must not know what the
// records mean, and must not hold samples.
package journal
