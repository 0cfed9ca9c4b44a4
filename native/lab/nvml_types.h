/* The part of the NVML interface that the stand-in answers: same names, values
 * and layouts as the real library's. */
#ifndef FALCON_LAB_NVML_TYPES_H
#define FALCON_LAB_NVML_TYPES_H

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;

typedef enum {
  NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6, NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10, NVML_ERROR_MEMORY = 20, NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3 };
enum { NVML_EVENT_XID = 0x8 };
enum { NVML_VALUE_UINT = 1, NVML_VALUE_ULONG_LONG = 3 };

enum {
  NVML_FI_ECC_SBE_VOL = 3, NVML_FI_ECC_DBE_VOL = 4, NVML_FI_POWER_CAP_NS = 74, NVML_FI_SYNC_BOOST_NS = 76,
  NVML_FI_POWER_AVERAGE = 185, NVML_FI_POWER_INSTANT = 186, NVML_FI_POWER_LIMIT = 190, NVML_FI_RECOVERY_ACTION = 230,
  NVML_FI_SW_THERMAL_NS = 269, NVML_FI_HW_THERMAL_NS = 270, NVML_FI_POWER_BRAKE_NS = 271
};

typedef union {
  double d;
  unsigned int ui;
  unsigned long long ull;
} nvmlValue_t;

typedef struct {
  unsigned int fieldId, scopeId;
  long long timestamp; /* us since 1970 */
  long long latencyUsec;
  int valueType;
  int nvmlReturn;
  nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct {
  char busIdLegacy[16];
  unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;

typedef struct {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;
  unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

typedef struct {
  unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
  unsigned int gpu, memory; /* percent */
} nvmlUtilization_t;

/* GPU performance monitoring: two samples are compared. */
enum { NVML_GPM_METRIC_SM_UTIL = 2, NVML_GPM_METRICS = 333 };

typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

typedef struct {
  unsigned int metricId;
  int nvmlReturn;
  double value;
  struct {
    char *shortName, *longName, *unit;
  } metricInfo;
} nvmlGpmMetric_t;

typedef struct {
  unsigned int version, numMetrics;
  nvmlGpmSample_t sample1, sample2;
  nvmlGpmMetric_t metrics[NVML_GPM_METRICS];
} nvmlGpmMetricsGet_t;

typedef struct {
  unsigned int version, isSupportedDevice;
} nvmlGpmSupport_t;

#endif
