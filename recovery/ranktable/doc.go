// Package ranktable reads, writes and compares rank tables: which device on
// which server has which rank, in HCCL's JSON of versions 1.0 and 1.2
// (FlashRecovery §III-D, "Updated ranktable loading").
//
// It guarantees: what Decode accepts is whole (every rank once, every server
// once, only known fields, status "completed") and means the same to any JSON
// reader; Encode writes one server a line, so that a replaced server is one
// changed line; Diff of two encodings, applied to the first, is the second byte
// for byte or an error. Generations are no field of HCCL: a Sidecar beside the
// table carries them, and a delta names the one it is based on.
//
// Tables come from elsewhere: sizes are bounded, bad ones get one sentence. It
// is pure: files, their atomic replacement and the refusal of old generations
// belong to whoever keeps them.
package ranktable
