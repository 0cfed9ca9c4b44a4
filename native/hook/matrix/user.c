/* A framework's library: with -DOWN it brings a small NCCL along, else it is linked to the real one. */
#include "../nccl_abi.h"

#define API __attribute__((visibility("default")))

int ncclGetVersion(int *);
int ncclGetUniqueId(nccl_unique_id *);
int ncclCommInitRank(void **, int, nccl_unique_id, int);

#ifdef OWN
#define NAME(end) own##end
API int ncclGetVersion(int *v) { *v = 29999; return 0; }
API int ncclGetUniqueId(nccl_unique_id *id) { id->internal[0] = 1; return 0; }
API int ncclCommInitRank(void **c, int n, nccl_unique_id id, int rank) { (void)n; (void)rank; *c = NULL; return id.internal[0] ? 3 : 4; }
#else
#define NAME(end) use##end
#endif

API int NAME(GetVersion)(int *);
API int NAME(GetUniqueId)(nccl_unique_id *);
API int NAME(CommInitRank)(void **, int, nccl_unique_id, int);
int NAME(GetVersion)(int *v) { int rc = ncclGetVersion(v); __asm__ volatile(""); return rc; }
int NAME(GetUniqueId)(nccl_unique_id *id) { int rc = ncclGetUniqueId(id); __asm__ volatile(""); return rc; }
int NAME(CommInitRank)(void **c, int n, nccl_unique_id id, int rank) { int rc = ncclCommInitRank(c, n, id, rank); __asm__ volatile(""); return rc; }
