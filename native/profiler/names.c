/* NCCL's names of operations and types, as their numbers. */
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

static const char *const types[] = {"Int8", "Uint8", "Int32", "Uint32", "Int64", "Uint64", "Float16", "Float32", "Float64", "Bfloat16", "Float8e4m3", "Float8e5m2"};

uint8_t falcon_name_op(const char *func) {
  for (size_t i = 0; func && i < sizeof ops / sizeof *ops; i++)
    if (!strcmp(ops[i].name, func)) return ops[i].value;
  return FALCON_OP_NONE;
}

uint8_t falcon_name_type(const char *datatype) {
  if (!datatype || strncmp(datatype, "nccl", TYPE_PREFIX)) return UINT8;
  for (uint8_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i], datatype + TYPE_PREFIX)) return i;
  return UINT8;
}
