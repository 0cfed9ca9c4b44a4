/* Stands for a framework's library: it is linked to NCCL, and programs load it. */
#include "nccl.h"

__attribute__((visibility("default"))) int fw_train(int calls);
int fw_train(int calls) {
  void *c = NULL;
  if (ncclCommInitRank(&c, 4, test_id(3), 1)) return -1;
  for (int i = 0; i < calls; i++)
    if (ncclAllReduce(NULL, NULL, 10, 7, 0, c, NULL)) return -1;
  return 0;
}

__attribute__((visibility("default"))) void *fw_init_function(void);
void *fw_init_function(void) { return (void *)ncclCommInitRank; }
