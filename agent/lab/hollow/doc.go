// Package hollow makes stand-ins of the CUDA libraries that an installed PyTorch is linked with, so
// that the real wheel runs on a machine without a GPU: real host code (ProcessGroupNCCL, DDP's
// reducer, streams, watchdogs) over emulated silicon. Kernels take their modelled time and compute
// nothing but control data: operators whose results are integers or truth values, and those that move
// elements as they are, up to 16 MiB a call, are computed by PyTorch's own CPU code on the device's
// memory, in the order of the stream. That part is compiled against the wheel's headers; Uncomputed
// says where it could not be. What a job learns there is not to be trusted.
//
// It guarantees: the stand-ins export what that wheel's own libraries import, with the version
// nodes that they ask for, and nothing is written into the installation. A function that is not
// emulated fails with one line that names it. It must not be used beside a GPU.
package hollow
