/*
 * Which threads are inside NCCL. An abort frees its communicator, so it waits
 * for them to come out, but not for one that waits inside for a dead peer: the
 * abort is what lets that one go. A thread's slot stays its own.
 */
#include "clock.h"
#include "hook.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MEMBARRIER_GLOBAL 1 /* MEMBARRIER_CMD_GLOBAL, Linux 4.3 */
#define NAP_NS 200000l

_Atomic uint32_t falcon_busy[FALCON_BUSY_SLOTS][16];

void falcon_busy_claim(falcon_tls *t) {
  static _Atomic uint32_t claimed;
  uint32_t n = atomic_load(&claimed);
  while (n < FALCON_BUSY_SLOTS && !atomic_compare_exchange_weak(&claimed, &n, n + 1)) continue;
  t->busy_slot = n + 1; /* one beyond the slots: it has none */
}

/* The barrier on all processors: whoever looked the handle up before it was
 * closed is seen to be busy now. */
void falcon_busy_await(uint64_t ns) {
  uint64_t until = falcon_mono_ns() + ns;
  syscall(SYS_membarrier, MEMBARRIER_GLOBAL, 0);
  for (uint32_t i = 0; i < FALCON_BUSY_SLOTS; i++)
    while (atomic_load_explicit(&falcon_busy[i][0], memory_order_acquire) && falcon_mono_ns() < until)
      nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}
