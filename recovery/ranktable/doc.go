// Package ranktable writes rank tables, which name the device and the server of each
// rank, in HCCL's JSON of version 1.0, and the deltas between them (FlashRecovery
// §III-D, "Updated ranktable loading").
//
// It guarantees: a table is whole (every rank and every server once, status
// "completed"); one server is one line, so that a replaced server is one changed line;
// Diff of two tables, applied to the first, is the second byte for byte. Generations
// are no field of HCCL: a Sidecar carries them, and a delta names the one it is based
// on.
//
// Deltas stay although whole tables are simpler: at 18,000 devices a table is 1.2 MB,
// which gzip makes 81 kB in about 30 ms of a core. For the 2,250 nodes of one recovery
// that is a minute of the engine, as gRPC compresses every message by itself; a replaced
// server as a delta is 858 bytes and made once (BenchmarkGzip18000, BenchmarkDiff18000).
//
// It is pure: files, their atomic replacement and the refusal of old generations
// belong to the agents that keep them. It reads nothing: who applies a delta is in
// agent/table, and a reader for tests in ranktabletest.
package ranktable
