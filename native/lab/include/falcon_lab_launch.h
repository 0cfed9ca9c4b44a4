/*
 * Kernels of the emulated GPU that no library offers (activations, losses,
 * optimizers): real arithmetic, run on the stream, at a modelled pace.
 * Exported by the lab's libcudart.so.12; a real one does not have it.
 */
#ifndef FALCON_LAB_LAUNCH_H
#define FALCON_LAB_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* fn(copy of arg) runs on the stream, after all that was enqueued before it.
 * arg_bytes of arg are copied now (at most 4096). The kernel takes
 * flops * load / (peak_flops * clock) modelled seconds; 0 flops take none. */
cudaError_t falcon_lab_launch(cudaStream_t stream, void (*fn)(void *arg), const void *arg,
                              size_t arg_bytes, double flops);

/* Kernels of compiled code that this thread has launched, and the stream of the last one; stream may be NULL. */
unsigned long falcon_lab_launched(cudaStream_t *stream);

/* fn(arg) runs on the stream, after all that was enqueued before it, and takes no modelled time. release(arg)
 * is called once, whether it ran or not. */
cudaError_t falcon_lab_after(cudaStream_t stream, void (*fn)(void *arg), void (*release)(void *arg), void *arg);

/* Modelled time of a finished event, CLOCK_MONOTONIC ns. */
cudaError_t falcon_lab_event_ns(cudaEvent_t event, int64_t *ns);

#ifdef __cplusplus
}
#endif

#endif
