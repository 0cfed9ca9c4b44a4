/* The few prototypes that the tests call. */
#ifndef FALCON_TEST_NCCL_H
#define FALCON_TEST_NCCL_H

#include "../nccl_abi.h"
#include "shm.h"

int ncclCommInitRank(void **c, int n, nccl_unique_id id, int rank);
int ncclCommInitRankConfig(void **c, int n, nccl_unique_id id, int rank, nccl_config *cfg);
int ncclCommInitAll(void **c, int n, const int *d);
int ncclCommInitRankScalable(void **c, int n, int rank, int k, nccl_unique_id *ids, nccl_config *cfg);
int ncclCommSplit(void *p, int color, int key, void **c, nccl_config *cfg);
int ncclCommDestroy(void *c);
int ncclCommAbort(void *c);
int ncclCommFinalize(void *c);
int ncclCommGetAsyncError(void *c, int *rc);
int ncclCommRegister(void *c, void *b, size_t n, void **h);
int ncclCommDeregister(void *c, void *h);
int ncclCommWindowRegister(void *c, void *b, size_t n, void **w, int f);
int ncclCommWindowDeregister(void *c, void *w);
int ncclDevCommCreate(void *c, const void *wants, void *out);
int ncclDevCommDestroy(void *c, const void *out);
int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int where, void *c);
int ncclRedOpDestroy(int op, void *c);
int ncclCommCount(void *c, int *n);
int ncclSignal(int peer, int sig, int ctx, unsigned fl, void *c, void *st);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *s, void *r, size_t n, int t, int o, void *c, void *st);
int ncclAllGather(const void *s, void *r, size_t n, int t, void *c, void *st);
int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st);
int ncclBcast(void *b, size_t n, int t, int root, void *c, void *st);
int ncclSend(const void *s, size_t n, int t, int peer, void *c, void *st);
int ncclRecv(void *s, size_t n, int t, int peer, void *c, void *st);

static inline nccl_unique_id test_id(int n) {
  nccl_unique_id id;
  memset(&id, 0, sizeof id);
  memcpy(&id, &n, sizeof n);
  return id;
}

#endif
