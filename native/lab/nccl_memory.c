/* Memory that NCCL gives and takes note of: the stand-in copies through sockets, so that no registration is needed. */
#include "nccl_internal.h"

#define LAB_API __attribute__((visibility("default")))

LAB_API ncclResult_t ncclMemAlloc(void **p, size_t size) {
  return cudaMalloc(p, size) ? ncclUnhandledCudaError : ncclSuccess;
}

LAB_API ncclResult_t ncclMemFree(void *p) { return cudaFree(p) ? ncclUnhandledCudaError : ncclSuccess; }

LAB_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void *p, size_t size, void **handle) {
  (void)size;
  if (!comm || !p || !handle) return ncclInvalidArgument;
  *handle = p;
  return ncclSuccess;
}

LAB_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  return comm && handle ? ncclSuccess : ncclInvalidArgument;
}
