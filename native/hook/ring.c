/* Who owns which ring: claimed at a thread's first call, given back at its end. */
#include "ring.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLAIM_AGAIN 256u /* a thread without a ring looks again after so many calls */

__thread falcon_tls falcon_thread;

static pthread_key_t exit_key;
static bool have_key;

static void thread_exit(void *p) {
  falcon_tls *t = p;
  t->exiting = 1;
  if (t->ring && falcon_active()) __atomic_store_n(&t->ring->tid, 0, __ATOMIC_RELEASE);
  t->ring = NULL;
}

void falcon_ring_setup(void) { have_key = !pthread_key_create(&exit_key, thread_exit); }

/* Maps the pages here, not call by call. */
static void touch(falcon_tls *t) {
  for (uint32_t i = 0; i < FALCON_RING_SLOTS; i += FALCON_PAGE / sizeof(falcon_record))
    __atomic_fetch_or(&t->slots[i].seq, 0, __ATOMIC_RELAXED);
}

static bool take(falcon_tls *t, uint32_t i) {
  char *base = falcon_hook.rings + i * falcon_hook.header->ring_stride;
  falcon_ring *ring = (falcon_ring *)base;
  uint32_t nobody = 0, me = (uint32_t)syscall(SYS_gettid);
  if (!__atomic_compare_exchange_n(&ring->tid, &nobody, me, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return false;
  t->slots = (falcon_record *)(base + FALCON_PAGE);
  if (!falcon_reserve(t->slots, FALCON_RING_SLOTS * sizeof(falcon_record))) {
    __atomic_store_n(&ring->tid, 0, __ATOMIC_RELEASE);
    return false;
  }
  t->ring = ring;
  t->head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
  t->ring_index = i;
  touch(t);
  return true;
}

FALCON_COLD bool falcon_ring_claim(falcon_tls *t) {
  bool look = t->misses++ % CLAIM_AGAIN == 0;
  /* The key comes first: a ring that no thread exit would give back is not taken. */
  if (look && !t->exiting && have_key && !pthread_setspecific(exit_key, t))
    for (uint32_t i = 0; i < FALCON_RINGS_MAX; i++)
      if (take(t, i)) return true;
  __atomic_fetch_add(&falcon_hook.control->records_lost, 1, __ATOMIC_RELAXED);
  return false;
}
