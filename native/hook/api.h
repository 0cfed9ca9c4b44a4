/*
 * Every function of NCCL that the hook interposes, as one list. FALCON_CALLS
 * are the calls that get a record: name, parameters, arguments, operation,
 * count, type, peer or root. FALCON_OTHERS are written out by hand (comm.c,
 * group.c, memory.c) and listed here only for resolution.
 */
#ifndef FALCON_API_H
#define FALCON_API_H

#define P_PLAIN (const void *s, void *r, size_t n, int t, void *comm, void *stream)
#define A_PLAIN (s, r, n, t, comm, stream)
#define P_REDUCE (const void *s, void *r, size_t n, int t, int o, void *comm, void *stream)
#define A_REDUCE (s, r, n, t, o, comm, stream)
#define P_ROOT (const void *s, void *r, size_t n, int t, int root, void *comm, void *stream)
#define A_ROOT (s, r, n, t, root, comm, stream)
#define P_REDROOT (const void *s, void *r, size_t n, int t, int o, int root, void *comm, void *stream)
#define A_REDROOT (s, r, n, t, o, root, comm, stream)
#define P_SEND (const void *s, size_t n, int t, int peer, void *comm, void *stream)
#define A_SEND (s, n, t, peer, comm, stream)
#define P_RECV (void *r, size_t n, int t, int peer, void *comm, void *stream)
#define A_RECV (r, n, t, peer, comm, stream)
#define P_BCAST (void *b, size_t n, int t, int root, void *comm, void *stream)
#define A_BCAST (b, n, t, root, comm, stream)
#define P_PUT (const void *s, size_t n, int t, int peer, void *win, size_t off, int sig, int ctx, unsigned fl, void *comm, void *stream)
#define A_PUT (s, n, t, peer, win, off, sig, ctx, fl, comm, stream)
#define P_SIGNAL (int peer, int sig, int ctx, unsigned fl, void *comm, void *stream)
#define A_SIGNAL (peer, sig, ctx, fl, comm, stream)
#define P_WAIT (int n, void *desc, void *comm, void *stream)
#define A_WAIT (n, desc, comm, stream)
/* 2.31: the same with a per-call configuration behind the stream. */
#define P_PLAIN_C (const void *s, void *r, size_t n, int t, void *comm, void *stream, const void *cfg)
#define A_PLAIN_C (s, r, n, t, comm, stream, cfg)
#define P_REDUCE_C (const void *s, void *r, size_t n, int t, int o, void *comm, void *stream, const void *cfg)
#define A_REDUCE_C (s, r, n, t, o, comm, stream, cfg)
#define P_ROOT_C (const void *s, void *r, size_t n, int t, int root, void *comm, void *stream, const void *cfg)
#define A_ROOT_C (s, r, n, t, root, comm, stream, cfg)
#define P_REDROOT_C (const void *s, void *r, size_t n, int t, int o, int root, void *comm, void *stream, const void *cfg)
#define A_REDROOT_C (s, r, n, t, o, root, comm, stream, cfg)

#define FALCON_CALLS(X) \
  X(ncclAllReduce, P_REDUCE, A_REDUCE, ALLREDUCE, n, t, -1) \
  X(ncclReduce, P_REDROOT, A_REDROOT, REDUCE, n, t, root) \
  X(ncclReduceScatter, P_REDUCE, A_REDUCE, REDUCESCATTER, n, t, -1) \
  X(ncclAllGather, P_PLAIN, A_PLAIN, ALLGATHER, n, t, -1) \
  X(ncclBroadcast, P_ROOT, A_ROOT, BROADCAST, n, t, root) \
  X(ncclBcast, P_BCAST, A_BCAST, BROADCAST, n, t, root) \
  X(ncclAlltoAll, P_PLAIN, A_PLAIN, ALLTOALL, n, t, -1) \
  X(ncclGather, P_ROOT, A_ROOT, GATHER, n, t, root) \
  X(ncclScatter, P_ROOT, A_ROOT, SCATTER, n, t, root) \
  X(ncclSend, P_SEND, A_SEND, SEND, n, t, peer) \
  X(ncclRecv, P_RECV, A_RECV, RECV, n, t, peer) \
  X(ncclPutSignal, P_PUT, A_PUT, PUTSIGNAL, n, t, peer) \
  X(ncclSignal, P_SIGNAL, A_SIGNAL, SIGNAL, 0, 0, peer) \
  X(ncclWaitSignal, P_WAIT, A_WAIT, WAITSIGNAL, (size_t)n, 0, -1) \
  X(ncclAllReduceConfig, P_REDUCE_C, A_REDUCE_C, ALLREDUCE, n, t, -1) \
  X(ncclReduceConfig, P_REDROOT_C, A_REDROOT_C, REDUCE, n, t, root) \
  X(ncclReduceScatterConfig, P_REDUCE_C, A_REDUCE_C, REDUCESCATTER, n, t, -1) \
  X(ncclAllGatherConfig, P_PLAIN_C, A_PLAIN_C, ALLGATHER, n, t, -1) \
  X(ncclBroadcastConfig, P_ROOT_C, A_ROOT_C, BROADCAST, n, t, root) \
  X(ncclAlltoAllConfig, P_PLAIN_C, A_PLAIN_C, ALLTOALL, n, t, -1) \
  X(ncclGatherConfig, P_ROOT_C, A_ROOT_C, GATHER, n, t, root) \
  X(ncclScatterConfig, P_ROOT_C, A_ROOT_C, SCATTER, n, t, root)

#define FALCON_OTHERS(X) \
  X(ncclGroupStart) X(ncclGroupEnd) X(ncclGroupSimulateEnd) \
  X(ncclCommInitRank) X(ncclCommInitRankConfig) X(ncclCommInitAll) \
  X(ncclCommInitRankScalable) X(ncclCommSplit) X(ncclCommShrink) X(ncclCommGrow) \
  X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommRevoke) \
  X(ncclCommGetAsyncError) \
  X(ncclCommRegister) X(ncclCommDeregister) X(ncclCommWindowRegister) X(ncclCommWindowDeregister) \
  X(ncclDevCommCreate) X(ncclDevCommDestroy) X(ncclRedOpCreatePreMulSum) X(ncclRedOpDestroy) \
  X(ncclCommCount) X(ncclCommUserRank) X(ncclCommCuDevice) X(ncclCommGetUniqueId) X(ncclCommMemStats) \
  X(ncclCommSuspend) X(ncclCommResume) X(ncclWinGetUserPtr)

/* Called by the hook, never interposed. */
#define FALCON_QUERIES(X) X(ncclGetUniqueId) X(ncclGetVersion)

enum falcon_fn {
#define X(name, ...) FN_##name,
  FALCON_CALLS(X) FALCON_OTHERS(X)
  FN_HOOKED, FN_BEFORE_QUERIES = FN_HOOKED - 1,
  FALCON_QUERIES(X)
#undef X
  FN_COUNT
};

#endif
