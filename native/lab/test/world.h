/* A world communicator per forked rank, and fillings that tell ranks apart. */
#ifndef FALCON_LAB_TEST_WORLD_H
#define FALCON_LAB_TEST_WORLD_H

#include <stdatomic.h>

#include "../include/nccl.h"
#include "check.h"

/* Where forked ranks leave the unique id, and numbers, for each other. */
typedef struct board {
  atomic_int ready;
  ncclUniqueId id;
  atomic_int flag[8];
  _Atomic int64_t word[64];
  int perm[64]; /* process -> logical rank */
  unsigned char result[64][1 << 20];
} board;

ncclComm_t world(board *b, int rank, int n);
void meet_flag(board *b, int flag, int n); /* a barrier that needs no NCCL */

/* Element i of rank r: small, signed, and rounding differently in each order. */
static inline float value(int r, size_t i) {
  uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)r * 40503u;
  return (float)((int)(h >> 8) % 20001 - 10000) * 0.000123f;
}

#endif
