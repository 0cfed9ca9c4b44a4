/* Operations: arguments checked, then handed to the group or the stream. Every
 * name has its pnccl alias; the nccl one is weak, so that a hook can interpose. */
#include <stdlib.h>

#include "nccl_internal.h"

#define API __attribute__((visibility("default")))
#define ALIAS(name) __attribute__((visibility("default"), weak, alias("p" #name)))

static ncclResult_t check(const call *c) {
  int n = c->comm->n;
  int adds = c->kind == OP_ALLREDUCE || c->kind == OP_REDUCE || c->kind == OP_REDUCESCATTER;
  if (!type_bytes(c->type)) return nccl_error(ncclInvalidArgument, "unknown data type %d", (int)c->type);
  if (adds && (unsigned)c->op >= ncclNumOps) return nccl_error(ncclInvalidArgument, "unknown reduction %d", (int)c->op);
  if (adds && !reducible(c->type))
    return nccl_error(ncclInvalidArgument, "the lab can't reduce data type %d: use fp32", (int)c->type);
  if (c->root < 0 || c->root >= n) return nccl_error(ncclInvalidArgument, "rank %d is outside 0..%d", c->root, n - 1);
  if (c->bytes / type_bytes(c->type) != c->count) return nccl_error(ncclInvalidArgument, "count overflows");
  int sends = c->kind != OP_RECV && !(c->kind == OP_BROADCAST && c->comm->rank != c->root) &&
              !(c->kind == OP_SCATTER && c->comm->rank != c->root);
  int receives = c->kind != OP_SEND && !((c->kind == OP_REDUCE || c->kind == OP_GATHER) && c->comm->rank != c->root);
  if (c->count && ((sends && !c->send) || (receives && !c->recv))) return nccl_error(ncclInvalidArgument, "null buffer");
  return ncclSuccess;
}

static ncclResult_t accept_call(call k, ncclComm_t handle) {
  ncclComm_t m = comm_acquire(handle);
  if (!m) return ncclInvalidArgument;
  k.comm = m;
  k.bytes = k.count * type_bytes(k.type);
  ncclResult_t rc = comm_usable(m);
  if (rc == ncclSuccess) rc = check(&k);
  call *c = rc == ncclSuccess ? malloc(sizeof *c) : NULL;
  if (rc == ncclSuccess && !c) rc = nccl_error(ncclSystemError, "out of memory");
  if (rc != ncclSuccess) {
    comm_release(m);
    return rc;
  }
  *c = k;
  falcon_lab_host_launch();
  watch_call(c);
  return group_add(c);
}

static ncclResult_t take(call k, ncclComm_t handle) {
  events_enter();
  ncclResult_t rc = accept_call(k, handle);
  events_leave(NULL, NULL);
  group_note(rc);
  return rc;
}

#define CALL(k, ...) take((call){.kind = k, .stream = stream, .type = type, .count = count, __VA_ARGS__}, comm)

API ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t stream) {
  return CALL(OP_ALLREDUCE, .send = send, .recv = recv, .op = op);
}

API ncclResult_t pncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                             ncclComm_t comm, cudaStream_t stream) {
  return CALL(OP_REDUCE, .send = send, .recv = recv, .op = op, .root = root);
}

API ncclResult_t pncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                    ncclComm_t comm, cudaStream_t stream) {
  return CALL(OP_REDUCESCATTER, .send = send, .recv = recv, .op = op);
}

API ncclResult_t pncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                                cudaStream_t stream) {
  return CALL(OP_ALLGATHER, .send = send, .recv = recv);
}

API ncclResult_t pncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                                ncclComm_t comm, cudaStream_t stream) {
  return CALL(OP_BROADCAST, .send = send, .recv = recv, .root = root);
}

/* Through the public name, as in NCCL: a hook sees both calls. */
API ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                            cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, type, root, comm, stream);
}

API ncclResult_t pncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream) {
  return CALL(OP_ALLTOALL, .send = send, .recv = recv);
}

API ncclResult_t pncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                             ncclComm_t comm, cudaStream_t stream) {
  return CALL(OP_GATHER, .send = send, .recv = recv, .root = root);
}

API ncclResult_t pncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream) {
  return CALL(OP_SCATTER, .send = send, .recv = recv, .root = root);
}

API ncclResult_t pncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           cudaStream_t stream) {
  return CALL(OP_SEND, .send = send, .root = peer);
}

API ncclResult_t pncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           cudaStream_t stream) {
  return CALL(OP_RECV, .recv = recv, .root = peer);
}

/* ---- library ---- */

API ncclResult_t pncclGetVersion(int *version) {
  if (!version) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

API const char *pncclGetErrorString(ncclResult_t rc) {
  static const char *const text[ncclNumResults] = {
      "no error", "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage", "remote process exited or there was a network error",
      "operation in progress"};
  return (unsigned)rc < ncclNumResults ? text[rc] : "unknown result code";
}

ALIAS(ncclAllReduce) ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                                cudaStream_t);
ALIAS(ncclReduce) ncclResult_t ncclReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                                          cudaStream_t);
ALIAS(ncclReduceScatter) ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                                        ncclComm_t, cudaStream_t);
ALIAS(ncclAllGather) ncclResult_t ncclAllGather(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
ALIAS(ncclBroadcast) ncclResult_t ncclBroadcast(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                                                cudaStream_t);
ALIAS(ncclBcast) ncclResult_t ncclBcast(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ALIAS(ncclAlltoAll) ncclResult_t ncclAlltoAll(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
ALIAS(ncclGather) ncclResult_t ncclGather(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ALIAS(ncclScatter) ncclResult_t ncclScatter(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                                            cudaStream_t);
ALIAS(ncclSend) ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ALIAS(ncclRecv) ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ALIAS(ncclGetVersion) ncclResult_t ncclGetVersion(int *);
ALIAS(ncclGetErrorString) const char *ncclGetErrorString(ncclResult_t);
