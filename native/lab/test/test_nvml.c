/* NVML answers what the state file says. Opened as go-nvml does it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../nvml_types.h"
#include "check.h"

static unsigned char *state;
static void *lib;

static void *sym(const char *name) {
  void *p = dlsym(lib, name);
  if (!p) fprintf(stderr, "%s: missing\n", name);
  CHECK(p);
  return p;
}

#define FN(name, ...) ((nvmlReturn_t(*)(__VA_ARGS__))sym(#name))

static void counters(nvmlDevice_t d) {
  falcon_lab_gpu *g = state_gpu(state, 1, 1);
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  g->thermal_ns = 5;
  g->thermal_since_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec - 1000;
  g->ecc_fatal = 3;
  nvmlFieldValue_t f[4] = {{.fieldId = NVML_FI_HW_THERMAL_NS}, {.fieldId = NVML_FI_ECC_DBE_VOL},
                           {.fieldId = NVML_FI_POWER_INSTANT}, {.fieldId = 9999}};
  OK(FN(nvmlDeviceGetFieldValues, nvmlDevice_t, int, nvmlFieldValue_t *)(d, 4, f));
  CHECK(f[0].nvmlReturn == NVML_SUCCESS && f[0].value.ull >= 1005);
  CHECK(f[1].value.ull == 3);
  CHECK(f[2].valueType == NVML_VALUE_UINT && f[2].value.ui == 400000);
  CHECK(f[3].nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
  unsigned long long n;
  OK(FN(nvmlDeviceGetTotalEccErrors, nvmlDevice_t, unsigned, unsigned, unsigned long long *)(d, 1, 0, &n));
  CHECK(n == 3);
}

static void xids(nvmlDevice_t d) {
  nvmlEventSet_t set;
  nvmlEventData_t e;
  OK(FN(nvmlEventSetCreate, nvmlEventSet_t *)(&set));
  OK(FN(nvmlDeviceRegisterEvents, nvmlDevice_t, unsigned long long, nvmlEventSet_t)(d, NVML_EVENT_XID, set));
  nvmlReturn_t (*wait)(nvmlEventSet_t, nvmlEventData_t *, unsigned) = sym("nvmlEventSetWait_v2");
  CHECK(wait(set, &e, 1) == NVML_ERROR_TIMEOUT);
  state_gpu(state, 1, 1)->last_xid = 79;
  state_gpu(state, 1, 1)->xid_count = 2;
  for (int i = 0; i < 2; i++) {
    OK(wait(set, &e, 1000));
    CHECK(e.device == d && e.eventType == NVML_EVENT_XID && e.eventData == 79);
  }
  CHECK(wait(set, &e, 0) == NVML_ERROR_TIMEOUT);
  OK(FN(nvmlEventSetFree, nvmlEventSet_t)(set));
}

/* How busy: what the CUDA stand-in counts beside the state file. */
static void busy(nvmlDevice_t d) {
  char path[512];
  snprintf(path, sizeof path, "%s.busy", getenv("FALCON_LAB_STATE"));
  nvmlUtilization_t u;
  nvmlGpmSample_t was, now;
  OK(FN(nvmlDeviceGetUtilizationRates, nvmlDevice_t, nvmlUtilization_t *)(d, &u));
  CHECK(u.gpu == 0); /* nothing was counted yet */
  OK(FN(nvmlGpmSampleAlloc, nvmlGpmSample_t *)(&was));
  OK(FN(nvmlGpmSampleAlloc, nvmlGpmSample_t *)(&now));
  FILE *f = fopen(path, "w+");
  CHECK(f && !ftruncate(fileno(f), FALCON_LAB_NODES * FALCON_LAB_GPUS * 16));
  OK(FN(nvmlGpmSampleGet, nvmlDevice_t, nvmlGpmSample_t)(d, was));
  nanosleep(&(struct timespec){0, 250000000}, NULL);
  uint64_t ns[2] = {10000000000u, 100000000}; /* ten seconds with something on it, 0.1 s of them at work */
  CHECK(!fseek(f, (FALCON_LAB_GPUS + 1) * 16, SEEK_SET) && fwrite(ns, sizeof ns, 1, f) == 1 && !fclose(f));
  OK(FN(nvmlGpmSampleGet, nvmlDevice_t, nvmlGpmSample_t)(d, now));
  static nvmlGpmMetricsGet_t g = {.version = 1, .numMetrics = 2, .metrics = {{.metricId = NVML_GPM_METRIC_SM_UTIL}, {.metricId = 99}}};
  g.sample1 = was;
  g.sample2 = now;
  OK(FN(nvmlGpmMetricsGet, nvmlGpmMetricsGet_t *)(&g));
  CHECK(g.metrics[0].nvmlReturn == NVML_SUCCESS && g.metrics[0].value > 0 && g.metrics[0].value <= 40);
  CHECK(g.metrics[1].nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
  OK(FN(nvmlDeviceGetUtilizationRates, nvmlDevice_t, nvmlUtilization_t *)(d, &u));
  CHECK(u.gpu == 100); /* never more */
  OK(FN(nvmlGpmSampleFree, nvmlGpmSample_t)(was));
  OK(FN(nvmlGpmSampleFree, nvmlGpmSample_t)(now));
  CHECK(!remove(path));
}

static void answers(void) {
  nvmlDevice_t d;
  unsigned v;
  char s[96];
  nvmlPciInfo_t pci;
  setenv("FALCON_LAB_NODE", "1", 1);
  CHECK(FN(nvmlDeviceGetCount_v2, unsigned *)(&v) == NVML_ERROR_UNINITIALIZED);
  OK(FN(nvmlInit_v2, void)());
  OK(FN(nvmlDeviceGetCount_v2, unsigned *)(&v));
  CHECK(v == 2);
  CHECK(FN(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t *)(2, &d) == NVML_ERROR_INVALID_ARGUMENT);
  OK(FN(nvmlDeviceGetHandleByIndex_v2, unsigned, nvmlDevice_t *)(1, &d));
  state_gpu(state, 1, 1)->sm_mhz = 990;
  state_gpu(state, 1, 1)->reasons = 0x48;
  OK(FN(nvmlDeviceGetClockInfo, nvmlDevice_t, unsigned, unsigned *)(d, NVML_CLOCK_SM, &v));
  CHECK(v == 990);
  OK(FN(nvmlDeviceGetMaxClockInfo, nvmlDevice_t, unsigned, unsigned *)(d, NVML_CLOCK_SM, &v));
  CHECK(v == 1980);
  OK(FN(nvmlDeviceGetTemperature, nvmlDevice_t, unsigned, unsigned *)(d, 0, &v));
  CHECK(v == 45);
  unsigned long long bits;
  OK(FN(nvmlDeviceGetCurrentClocksEventReasons, nvmlDevice_t, unsigned long long *)(d, &bits));
  CHECK(bits == 0x48);
  OK(FN(nvmlDeviceGetUUID, nvmlDevice_t, char *, unsigned)(d, s, sizeof s));
  CHECK(strcmp(s, "GPU-fa1c0000-0000-4000-8000-000100000001") == 0);
  CHECK(FN(nvmlDeviceGetName, nvmlDevice_t, char *, unsigned)(d, s, 4) == NVML_ERROR_INSUFFICIENT_SIZE);
  OK(FN(nvmlDeviceGetPciInfo_v3, nvmlDevice_t, nvmlPciInfo_t *)(d, &pci));
  CHECK(strcmp(pci.busId, "00000001:11:00.0") == 0);
  counters(d);
  xids(d);
  busy(d);
  OK(FN(nvmlShutdown, void)());
  CHECK(FN(nvmlShutdown, void)() == NVML_ERROR_UNINITIALIZED);
}

static void no_driver(void) {
  unsetenv("FALCON_LAB_STATE");
  CHECK(FN(nvmlInit_v2, void)() == NVML_ERROR_DRIVER_NOT_LOADED);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  lib = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
  if (!lib) fprintf(stderr, "%s\n", dlerror());
  CHECK(lib);
  run_alone("NVML without a lab", no_driver, 10);
  state = state_create(2, 2);
  run_alone("NVML answers from the state", answers, 10);
  return 0;
}
