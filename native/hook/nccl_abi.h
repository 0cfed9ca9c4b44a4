/*
 * The few types of NCCL and the CUDA runtime that the hook touches, by their
 * binary shape (NCCL 2.18 to 2.31). The hook includes no vendor header and
 * links no vendor library: preloading happens before a framework's RPATH is
 * known, and a missing NEEDED library would kill the child.
 */
#ifndef FALCON_NCCL_ABI_H
#define FALCON_NCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct { char internal[128]; } nccl_unique_id; /* passed by value */

enum { NCCL_SUCCESS = 0, NCCL_SYSTEM_ERROR = 2, NCCL_INVALID_ARGUMENT = 4, NCCL_INVALID_USAGE = 5, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7 };

#define NCCL_CONFIG_MAGIC 0xcafebeefu

/* ncclConfig_t up to commName. Fields are only ever appended, and the caller
 * stores sizeof(its own struct) in size: up to 2.26 the struct ends at 48
 * bytes, commName lies at 48..56 from 2.27 on. So commName may be read exactly
 * when size >= 56. */
typedef struct {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
} nccl_config;

_Static_assert(offsetof(nccl_config, commName) == 48, "ncclConfig_t.commName lies at 48");
_Static_assert(sizeof(nccl_config) == 56, "the prefix ends behind commName");

/* Bytes of one element, by ncclDataType_t; 0 for values not known. */
static inline uint64_t nccl_type_bytes(unsigned dtype) {
  static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return dtype < sizeof bytes ? bytes[dtype] : 0;
}

/* The numbers that tensor cores multiply: a job that sends many of them computes in them. */
enum { NCCL_FLOAT16 = 6, NCCL_BFLOAT16 = 9, NCCL_FLOAT8_E5M2 = 11 };
#define FALCON_HALF_COUNT 32768u /* elements of a call */
static inline int nccl_type_half(int dtype) {
  return dtype == NCCL_FLOAT16 || (dtype >= NCCL_BFLOAT16 && dtype <= NCCL_FLOAT8_E5M2);
}

#endif
