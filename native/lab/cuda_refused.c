/*
 * What the lab does not emulate: graphs, and memory shared between processes.
 * Each function fails, with one line that names it.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "cuda_internal.h"

/* Reports a function that is not emulated, once each. */
LAB_API void falcon_lab_refused(const char *name, atomic_int *once) {
  if (!atomic_exchange(once, 1)) fprintf(stderr, "falcon lab: %s is not emulated here\n", name);
}

#define REFUSED(name)                            \
  LAB_API cudaError_t name(void) {               \
    static atomic_int once;                      \
    falcon_lab_refused(#name, &once);            \
    return cuda_fail(cudaErrorNotSupported);     \
  }

REFUSED(cudaGraphAddNode)
REFUSED(cudaGraphConditionalHandleCreate)
REFUSED(cudaGraphDestroy)
REFUSED(cudaGraphExecDestroy)
REFUSED(cudaGraphGetNodes)
REFUSED(cudaGraphInstantiate)
REFUSED(cudaGraphInstantiateWithFlags)
REFUSED(cudaGraphLaunch)
REFUSED(cudaGraphNodeGetDependencies)
REFUSED(cudaGraphRetainUserObject)
REFUSED(cudaIpcCloseMemHandle)
REFUSED(cudaIpcGetEventHandle)
REFUSED(cudaIpcGetMemHandle)
REFUSED(cudaIpcOpenEventHandle)
REFUSED(cudaIpcOpenMemHandle)
REFUSED(cudaStreamBeginCapture)
REFUSED(cudaStreamBeginCaptureToGraph)
REFUSED(cudaStreamEndCapture)
REFUSED(cudaStreamUpdateCaptureDependencies)
REFUSED(cudaUserObjectCreate)
REFUSED(cudaUserObjectRelease)
