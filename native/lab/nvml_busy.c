/*
 * How busy the emulated GPUs are: NVML's utilisation rates (the share of the time that something
 * is on the GPU, which a collective that waits is as well) and GPM's SM utilisation (the share
 * that computes).
 */
#include <stdlib.h>
#include <time.h>

#include "lab_busy.h"
#include "nvml_device.h"

#define WINDOW_NS 200000000u /* the rates are of the time since the newest look that is at least so old */

struct nvmlGpmSample_st {
  uint64_t at_ns, sm_ns;
};

/* ---- rates ---- */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t at_ns, any_ns; unsigned percent; } last[FALCON_LAB_GPUS];

static unsigned percent_of(uint64_t part, uint64_t whole) {
  if (!whole) return 0;
  return part >= whole ? 100 : (unsigned)(100 * part / whole);
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) {
  nvmlReturn_t why;
  if (!nvml_gpu(d, &why)) return why == NVML_SUCCESS ? NVML_ERROR_UNKNOWN : why;
  if (!u) return NVML_ERROR_INVALID_ARGUMENT;
  int i = nvml_index(d);
  uint64_t now = nvml_now_ns(CLOCK_MONOTONIC);
  lab_busy b = lab_busy_read(lab_node(), i);
  pthread_mutex_lock(&mu);
  if (now - last[i].at_ns >= WINDOW_NS) {
    last[i].percent = last[i].at_ns ? percent_of(b.any_ns - last[i].any_ns, now - last[i].at_ns) : 0;
    last[i].at_ns = now;
    last[i].any_ns = b.any_ns;
  }
  *u = (nvmlUtilization_t){last[i].percent, 0};
  pthread_mutex_unlock(&mu);
  return NVML_SUCCESS;
}

/* ---- GPM ---- */

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *s) {
  nvmlReturn_t why;
  if (!nvml_gpu(d, &why)) return why == NVML_SUCCESS ? NVML_ERROR_UNKNOWN : why;
  if (!s) return NVML_ERROR_INVALID_ARGUMENT;
  s->isSupportedDevice = 1;
  return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *s) {
  if (!s) return NVML_ERROR_INVALID_ARGUMENT;
  *s = calloc(1, sizeof **s);
  return *s ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t s) {
  free(s);
  return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t d, nvmlGpmSample_t s) {
  nvmlReturn_t why;
  if (!nvml_gpu(d, &why)) return why == NVML_SUCCESS ? NVML_ERROR_UNKNOWN : why;
  if (!s) return NVML_ERROR_INVALID_ARGUMENT;
  *s = (struct nvmlGpmSample_st){nvml_now_ns(CLOCK_MONOTONIC), lab_busy_read(lab_node(), nvml_index(d)).sm_ns};
  return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *g) {
  if (!g || g->version != 1 || !g->sample1 || !g->sample2 || g->numMetrics > NVML_GPM_METRICS) return NVML_ERROR_INVALID_ARGUMENT;
  const struct nvmlGpmSample_st *was = g->sample1, *now = g->sample2;
  for (unsigned i = 0; i < g->numMetrics; i++) {
    int known = g->metrics[i].metricId == NVML_GPM_METRIC_SM_UTIL && now->at_ns > was->at_ns;
    g->metrics[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    if (known) g->metrics[i].value = percent_of(now->sm_ns - was->sm_ns, now->at_ns - was->at_ns);
  }
  return NVML_SUCCESS;
}
