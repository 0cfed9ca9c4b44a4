// Package logs reads what training frameworks and monitors write: iteration
// times from logs of Megatron-LM, Megatron-DeepSpeed, DeepSpeed, NeMo, torchtitan,
// nanotron, MaxText, nanoGPT and llm.c, from progress bars, MLPerf's MLLOG, JSON
// lines, CSV, W&B's exports and TensorBoard's event files; what NCCL Inspector and
// DCGM export; and it tells all these, and the other files of package trace, apart.
//
// It guarantees that a column and a unit are never guessed: Read says which it
// took and why, and where two could be meant, or none says what it is, it gives
// one sentence that lists them (ErrUnclear). Inputs are bounded by the Max constants of package
// trace and by MaxCells and MaxColumns, numbers are finite, and text from a file is
// cleaned before it is handed out.
//
// It must not open a file, read a clock, or keep a value that it could not read
// whole: a last line without its end is left out, and said.
package logs
