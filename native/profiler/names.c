/* NCCL's names as their numbers. */
#include "names.h"

#include <string.h>

typedef struct { const char *name; uint8_t value; } named;

static const named ops[] = {
  {"AllReduce", FALCON_OP_ALLREDUCE}, {"AllGather", FALCON_OP_ALLGATHER}, {"ReduceScatter", FALCON_OP_REDUCESCATTER},
  {"Send", FALCON_OP_SEND}, {"Recv", FALCON_OP_RECV}, {"Broadcast", FALCON_OP_BROADCAST}, {"Reduce", FALCON_OP_REDUCE},
  {"AlltoAll", FALCON_OP_ALLTOALL}, {"Gather", FALCON_OP_GATHER}, {"Scatter", FALCON_OP_SCATTER}, {"AllGatherV", FALCON_OP_ALLGATHER},
};

#define TYPE_PREFIX 4 /* "nccl" */
#define UINT8 1       /* NCCL has no name for it */

/* The usual ones first. */
static const named types[] = {
  {"Bfloat16", 9}, {"Float32", 7}, {"Float16", 6}, {"Int8", 0}, {"Uint8", UINT8}, {"Int32", 2}, {"Uint32", 3}, {"Int64", 4}, {"Uint64", 5},
  {"Float64", 8}, {"Float8e4m3", 10}, {"Float8e5m2", 11},
};

static const named algorithms[] = {
  {"TREE", 1}, {"RING", 2}, {"COLLNET_DIRECT", 3}, {"COLLNET_CHAIN", 4}, {"NVLS", 5}, {"NVLS_TREE", 6}, {"PAT", 7},
};

static const named protocols[] = {{"LL", 1}, {"LL128", 2}, {"SIMPLE", 3}};

static uint8_t value_of(const named *list, size_t n, const char *name, uint8_t otherwise) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(list[i].name, name)) return list[i].value;
  return otherwise;
}

uint8_t falcon_name_op(const char *func) { return func ? value_of(ops, sizeof ops / sizeof *ops, func, FALCON_OP_NONE) : FALCON_OP_NONE; }

uint8_t falcon_name_type(const char *datatype) {
  if (!datatype || strncmp(datatype, "nccl", TYPE_PREFIX)) return UINT8;
  return value_of(types, sizeof types / sizeof *types, datatype + TYPE_PREFIX, UINT8);
}

uint8_t falcon_name_algorithm(const char *name) { return name ? value_of(algorithms, sizeof algorithms / sizeof *algorithms, name, 0) : 0; }

uint8_t falcon_name_protocol(const char *name) { return name ? value_of(protocols, sizeof protocols / sizeof *protocols, name, 0) : 0; }
