// Package logs reads files of training frameworks and monitors: iteration times
// from logs of Megatron-LM, Megatron-DeepSpeed, DeepSpeed, NeMo, torchtitan,
// nanotron, MaxText, nanoGPT and llm.c, from progress bars, MLPerf's MLLOG, JSON
// lines, CSV, W&B's exports and TensorBoard's event files; and the exports of NCCL
// Inspector and DCGM. It also detects the kind of a file, including those of package
// trace.
//
// It guarantees that columns and units are never guessed: Read reports which it
// used and why. If several match or none does, it returns one sentence that lists
// them (ErrUnclear). Inputs are bounded by the Max constants of package trace and by
// MaxCells and MaxColumns, numbers are finite, and text from a file is cleaned.
//
// It must not open a file, read a clock, or use a value that is incomplete: a last
// line without a line end is ignored, with a note.
package logs
