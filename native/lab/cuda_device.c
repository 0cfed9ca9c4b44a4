/* Devices, versions and errors. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda_internal.h"
#include "lab_state.h"

static __thread int device_of_thread;
static __thread cudaError_t last_error;

cudaError_t cuda_fail(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

int current_device(void) { return device_of_thread; }

static int device_count(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible && !*visible) return 0; /* as with the driver: a job on CPUs */
  const falcon_lab_header *h = lab_header();
  uint32_t n = h ? lab_u32(&h->gpus_per_node) : FALCON_LAB_GPUS;
  return n >= 1 && n <= FALCON_LAB_GPUS ? (int)n : (int)FALCON_LAB_GPUS;
}

LAB_API cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return cuda_fail(cudaErrorInvalidDevice);
  device_of_thread = device;
  return cudaSuccess;
}

LAB_API cudaError_t cudaGetDevice(int *device) {
  if (!device) return cuda_fail(cudaErrorInvalidValue);
  *device = device_of_thread;
  return cudaSuccess;
}

LAB_API cudaError_t cudaGetDeviceCount(int *count) {
  control_load();
  if (!count) return cuda_fail(cudaErrorInvalidValue);
  *count = device_count();
  return *count ? cudaSuccess : cuda_fail(cudaErrorNoDevice);
}

/* The same address that the lab's NVML gives for this device. */
LAB_API cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device) {
  if (!id || len < 13 || device < 0 || device >= device_count()) return cuda_fail(cudaErrorInvalidValue);
  snprintf(id, (size_t)len, "%04x:%02x:00.0", (unsigned)lab_node(), 0x10u + (unsigned)device);
  return cudaSuccess;
}

LAB_API cudaError_t cudaDriverGetVersion(int *version) {
  if (!version) return cuda_fail(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

LAB_API cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

LAB_API cudaError_t cudaDeviceSynchronize(void) { return cuda_fail(stream_wait_all()); }

LAB_API cudaError_t cudaGetLastError(void) {
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}

LAB_API cudaError_t cudaPeekAtLastError(void) { return last_error; }

static const struct { cudaError_t code; const char *name, *text; } errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization failed"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device index"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid stream or event"},
    {cudaErrorNotReady, "cudaErrorNotReady", "work has not finished yet"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "an operation on the stream failed"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported by the lab"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "event belongs to a capture"},
};

LAB_API const char *cudaGetErrorName(cudaError_t error) {
  for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == error) return errors[i].name;
  return "cudaErrorUnknown";
}

LAB_API const char *cudaGetErrorString(cudaError_t error) {
  for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == error) return errors[i].text;
  return "unknown error";
}
