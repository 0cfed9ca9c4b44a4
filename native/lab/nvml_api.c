/*
 * libnvidia-ml stand-in: what the driver would report of the GPUs of
 * $FALCON_LAB_NODE, read from the lab's state file at each call. Functions that
 * are missing here are missing on old drivers too; callers look them up first.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvml_device.h"

#define MEMORY_MHZ 2619u
#define XID_POLL_NS 50000000l /* how often a waiter looks at the state */

struct nvmlDevice_st { char unused; };
static struct nvmlDevice_st devices[FALCON_LAB_GPUS]; /* only their addresses matter */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int users;

static int ready(void) {
  pthread_mutex_lock(&mu);
  int ok = users > 0;
  pthread_mutex_unlock(&mu);
  return ok;
}

static unsigned device_count(void) {
  const falcon_lab_header *h = lab_header();
  uint32_t n = h ? lab_u32(&h->gpus_per_node) : 0;
  return n <= FALCON_LAB_GPUS ? n : FALCON_LAB_GPUS;
}

int nvml_index(nvmlDevice_t d) { return (int)(d - devices); }

const falcon_lab_gpu *nvml_gpu(nvmlDevice_t d, nvmlReturn_t *why) {
  *why = NVML_SUCCESS;
  if (!ready()) *why = NVML_ERROR_UNINITIALIZED;
  else if (!d || d < devices || d >= devices + device_count()) *why = NVML_ERROR_INVALID_ARGUMENT;
  return *why == NVML_SUCCESS ? lab_gpu(lab_node(), nvml_index(d)) : NULL;
}

uint64_t nvml_now_ns(clockid_t clock) {
  struct timespec ts;
  clock_gettime(clock, &ts);
  return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- library ---- */

API nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  if (!lab_state()) return NVML_ERROR_DRIVER_NOT_LOADED;
  pthread_mutex_lock(&mu);
  users++;
  pthread_mutex_unlock(&mu);
  return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

API nvmlReturn_t nvmlShutdown(void) {
  pthread_mutex_lock(&mu);
  nvmlReturn_t rc = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
  if (users > 0) users--;
  pthread_mutex_unlock(&mu);
  return rc;
}

API const char *nvmlErrorString(nvmlReturn_t rc) {
  switch (rc) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded: FALCON_LAB_STATE names no usable state file";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    default: return "Unknown Error";
  }
}

static nvmlReturn_t text(char *to, unsigned length, const char *s) {
  if (!ready()) return NVML_ERROR_UNINITIALIZED;
  if (!to) return NVML_ERROR_INVALID_ARGUMENT;
  if (strlen(s) + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(to, s);
  return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *v, unsigned length) { return text(v, length, "570.0.lab"); }
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *v, unsigned length) { return text(v, length, "12.570.0.lab"); }

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *v) {
  if (!v) return NVML_ERROR_INVALID_ARGUMENT;
  *v = 12080;
  return NVML_SUCCESS;
}
API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) { return nvmlSystemGetCudaDriverVersion_v2(v); }

/* ---- devices ---- */

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
  if (!ready()) return NVML_ERROR_UNINITIALIZED;
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = device_count();
  return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *d) {
  if (!ready()) return NVML_ERROR_UNINITIALIZED;
  if (!d || index >= device_count()) return NVML_ERROR_INVALID_ARGUMENT;
  *d = &devices[index];
  return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *d) {
  return nvmlDeviceGetHandleByIndex_v2(index, d);
}

/* The answer *to = value, when the device is one. */
#define ANSWER(d, to, value)                        \
  do {                                              \
    nvmlReturn_t why;                               \
    const falcon_lab_gpu *g = nvml_gpu(d, &why);      \
    if (why != NVML_SUCCESS) return why;            \
    if (!g) return NVML_ERROR_UNKNOWN;              \
    if (!(to)) return NVML_ERROR_INVALID_ARGUMENT;  \
    *(to) = (value);                                \
    return NVML_SUCCESS;                            \
  } while (0)

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *i) { ANSWER(d, i, (unsigned)nvml_index(d)); }
API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *i) { ANSWER(d, i, (unsigned)nvml_index(d)); }

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned length) {
  nvmlReturn_t why;
  nvml_gpu(d, &why);
  return why == NVML_SUCCESS ? text(name, length, "Falcon lab GPU (emulated)") : why;
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned length) {
  char s[48];
  nvmlReturn_t why;
  nvml_gpu(d, &why);
  if (why != NVML_SUCCESS) return why;
  snprintf(s, sizeof s, "GPU-fa1c0000-0000-4000-8000-%04x%08x", (unsigned)lab_node() & 0xffffu, (unsigned)nvml_index(d));
  return text(uuid, length, s);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) {
  nvmlReturn_t why;
  nvml_gpu(d, &why);
  if (why != NVML_SUCCESS || !p) return p ? why : NVML_ERROR_INVALID_ARGUMENT;
  *p = (nvmlPciInfo_t){.domain = (unsigned)lab_node() & 0xffffu, .bus = 0x10u + (unsigned)nvml_index(d), .pciDeviceId = 0x233010deu};
  snprintf(p->busIdLegacy, sizeof p->busIdLegacy, "%04X:%02X:00.0", p->domain & 0xffffu, p->bus & 0xffu);
  snprintf(p->busId, sizeof p->busId, "%08X:%02X:00.0", p->domain, p->bus & 0xffu);
  return NVML_SUCCESS;
}
API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, nvmlPciInfo_t *p) { return nvmlDeviceGetPciInfo_v3(d, p); }
API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *p) { return nvmlDeviceGetPciInfo_v3(d, p); }

/* ---- now ---- */

static unsigned clock_mhz(unsigned sm_mhz, unsigned type) { return type == NVML_CLOCK_MEM ? MEMORY_MHZ : sm_mhz; }

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz) {
  if (type > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
  ANSWER(d, mhz, clock_mhz(lab_u32(&g->sm_mhz), type));
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, unsigned type, unsigned *mhz) {
  if (type > NVML_CLOCK_VIDEO) return NVML_ERROR_INVALID_ARGUMENT;
  ANSWER(d, mhz, clock_mhz(lab_u32(&g->max_sm_mhz), type));
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned sensor, unsigned *celsius) {
  if (sensor) return NVML_ERROR_INVALID_ARGUMENT;
  ANSWER(d, celsius, lab_u32(&g->temperature_c));
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw) { ANSWER(d, mw, lab_u32(&g->power_mw)); }
API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *mw) { ANSWER(d, mw, lab_u32(&g->power_limit_mw)); }
API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t d, unsigned *mw) { ANSWER(d, mw, lab_u32(&g->power_limit_mw)); }

API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *bits) {
  ANSWER(d, bits, lab_u64(&g->reasons));
}
API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *bits) {
  return nvmlDeviceGetCurrentClocksEventReasons(d, bits);
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, unsigned type, unsigned counter, unsigned long long *n) {
  if (type > 1 || counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
  ANSWER(d, n, lab_u64(type ? &g->ecc_fatal : &g->ecc_corrected));
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
  ANSWER(d, m, ((nvmlMemory_t){80ull << 30, 60ull << 30, 20ull << 30}));
}

/* ---- counters ---- */

/* Time under a thermal slowdown; runs on while one lasts. */
static uint64_t thermal_ns(const falcon_lab_gpu *g) {
  uint64_t since = lab_u64(&g->thermal_since_ns), now = nvml_now_ns(CLOCK_MONOTONIC);
  return lab_u64(&g->thermal_ns) + (since && now > since ? now - since : 0);
}

static nvmlReturn_t field(const falcon_lab_gpu *g, unsigned id, unsigned long long *v) {
  switch (id) {
    case NVML_FI_ECC_SBE_VOL: *v = lab_u64(&g->ecc_corrected); break;
    case NVML_FI_ECC_DBE_VOL: *v = lab_u64(&g->ecc_fatal); break;
    case NVML_FI_POWER_CAP_NS: *v = lab_u64(&g->power_cap_ns); break;
    case NVML_FI_POWER_BRAKE_NS: *v = lab_u64(&g->power_brake_ns); break;
    case NVML_FI_HW_THERMAL_NS: *v = thermal_ns(g); break;
    case NVML_FI_SYNC_BOOST_NS:
    case NVML_FI_SW_THERMAL_NS:
    case NVML_FI_RECOVERY_ACTION: *v = 0; break;
    case NVML_FI_POWER_AVERAGE:
    case NVML_FI_POWER_INSTANT: *v = lab_u32(&g->power_mw); break;
    case NVML_FI_POWER_LIMIT: *v = lab_u32(&g->power_limit_mw); break;
    default: return NVML_ERROR_NOT_SUPPORTED;
  }
  return NVML_SUCCESS;
}

static int is_small(unsigned id) {
  return id == NVML_FI_POWER_AVERAGE || id == NVML_FI_POWER_INSTANT || id == NVML_FI_POWER_LIMIT || id == NVML_FI_RECOVERY_ACTION;
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int count, nvmlFieldValue_t *f) {
  nvmlReturn_t why;
  const falcon_lab_gpu *g = nvml_gpu(d, &why);
  if (why != NVML_SUCCESS) return why;
  if (!g) return NVML_ERROR_UNKNOWN;
  if (count <= 0 || !f) return NVML_ERROR_INVALID_ARGUMENT;
  for (int i = 0; i < count; i++) {
    unsigned long long v = 0;
    f[i].nvmlReturn = field(g, f[i].fieldId, &v);
    f[i].timestamp = (long long)(nvml_now_ns(CLOCK_REALTIME) / 1000);
    f[i].latencyUsec = 0;
    f[i].valueType = is_small(f[i].fieldId) ? NVML_VALUE_UINT : NVML_VALUE_ULONG_LONG;
    f[i].value.ull = v; /* little endian: the narrow members read the same */
  }
  return NVML_SUCCESS;
}

/* ---- events ---- */

struct nvmlEventSet_st {
  uint64_t seen[FALCON_LAB_GPUS];
  int watched[FALCON_LAB_GPUS];
};

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
  if (!ready()) return NVML_ERROR_UNINITIALIZED;
  if (!set) return NVML_ERROR_INVALID_ARGUMENT;
  *set = calloc(1, sizeof **set);
  return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  free(set);
  return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *types) {
  ANSWER(d, types, NVML_EVENT_XID);
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set) {
  nvmlReturn_t why;
  const falcon_lab_gpu *g = nvml_gpu(d, &why);
  if (why != NVML_SUCCESS) return why;
  if (!g || !set) return NVML_ERROR_INVALID_ARGUMENT;
  if (types & ~(unsigned long long)NVML_EVENT_XID) return NVML_ERROR_NOT_SUPPORTED;
  set->seen[nvml_index(d)] = lab_u64(&g->xid_count);
  set->watched[nvml_index(d)] = 1;
  return NVML_SUCCESS;
}

static int next_xid(nvmlEventSet_t set, nvmlEventData_t *e) {
  for (int i = 0; i < (int)FALCON_LAB_GPUS; i++) {
    const falcon_lab_gpu *g = set->watched[i] ? lab_gpu(lab_node(), i) : NULL;
    if (!g || lab_u64(&g->xid_count) <= set->seen[i]) continue;
    set->seen[i]++;
    *e = (nvmlEventData_t){&devices[i], NVML_EVENT_XID, lab_u32(&g->last_xid), 0xffffffffu, 0xffffffffu};
    return 1;
  }
  return 0;
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *e, unsigned timeout_ms) {
  if (!ready()) return NVML_ERROR_UNINITIALIZED;
  if (!set || !e) return NVML_ERROR_INVALID_ARGUMENT;
  uint64_t until = nvml_now_ns(CLOCK_MONOTONIC) + (uint64_t)timeout_ms * 1000000u;
  while (!next_xid(set, e)) {
    uint64_t now = nvml_now_ns(CLOCK_MONOTONIC);
    if (now >= until) return NVML_ERROR_TIMEOUT;
    long nap = until - now < XID_POLL_NS ? (long)(until - now) : XID_POLL_NS;
    nanosleep(&(struct timespec){0, nap}, NULL);
  }
  return NVML_SUCCESS;
}
API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *e, unsigned timeout_ms) {
  return nvmlEventSetWait_v2(set, e, timeout_ms);
}
