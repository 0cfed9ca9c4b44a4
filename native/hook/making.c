/*
 * Communicators whose creation has not returned: NCCL has them wait for their
 * peers, one of which may be dead, and stores the handle before it waits. Where
 * a creation is called inside a group, the group's end waits.
 *
 * The place of the handle is cleared before NCCL is called, so that what is
 * found there is a communicator.
 */
#include "suspend.h"

#include <pthread.h>

typedef struct making { void **where; bool taken; } making;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static making list[FALCON_MAKING_MAX];
static _Atomic uint32_t count;

uint32_t falcon_making_begin(void **where) {
  if (!where) return FALCON_MAKING_MAX;
  pthread_mutex_lock(&lock);
  uint32_t i = 0;
  while (i < FALCON_MAKING_MAX && list[i].where) i++;
  if (i < FALCON_MAKING_MAX) {
    __atomic_store_n(where, NULL, __ATOMIC_RELEASE);
    list[i] = (making){.where = where};
    atomic_fetch_add(&count, 1);
  }
  pthread_mutex_unlock(&lock);
  return i;
}

bool falcon_making_end(uint32_t ticket) {
  if (ticket >= FALCON_MAKING_MAX) return false;
  pthread_mutex_lock(&lock);
  bool taken = list[ticket].taken;
  list[ticket] = (making){0};
  atomic_fetch_sub(&count, 1);
  pthread_mutex_unlock(&lock);
  return taken;
}

uint32_t falcon_making_take(void **out, uint32_t max) {
  uint32_t n = 0;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < FALCON_MAKING_MAX && n < max; i++) {
    void *handle = list[i].where && !list[i].taken ? __atomic_load_n(list[i].where, __ATOMIC_ACQUIRE) : NULL;
    if (!handle) continue;
    list[i].taken = true;
    out[n++] = handle;
  }
  pthread_mutex_unlock(&lock);
  return n;
}

bool falcon_making_any(void) { return atomic_load(&count) != 0; }

void falcon_making_forked(void) { pthread_mutex_init(&lock, NULL); }
