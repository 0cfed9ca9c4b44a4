// Package table keeps the rank table of the newest generation in a file, for
// the training processes of one node: they read it there, once each, however
// many nodes the job has.
//
// It guarantees that the file is replaced at once (a reader sees the old table
// or the new one), that a sidecar beside it (".generation", JSON) says of which
// generation it is and what its bytes add up to, and that an older generation
// than that of the sidecar is refused, across restarts too. The sidecar is
// written last: where the two do not fit together, a crash came between them,
// and readers wait for the next table. Both are readable by their owner only.
//
// A table is bytes here, and a delta is edits of bytes with a checksum of the
// base and of the result: one that is for another base is refused (ErrBase), and
// whoever sent it sends the table whole. Without a path all is kept in memory,
// for jobs that read no rank table. A Store may be used from several goroutines;
// it starts none. It must not interpret the table.
package table
