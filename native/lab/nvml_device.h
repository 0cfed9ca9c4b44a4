/* What the parts of the NVML stand-in share. */
#ifndef FALCON_LAB_NVML_DEVICE_H
#define FALCON_LAB_NVML_DEVICE_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "lab_state.h"
#include "nvml_types.h"

#define API __attribute__((visibility("default")))

int nvml_index(nvmlDevice_t d);
const falcon_lab_gpu *nvml_gpu(nvmlDevice_t d, nvmlReturn_t *why); /* the state of a device, or NULL and the reason */
uint64_t nvml_now_ns(clockid_t clock);

#endif
