/*
 * Writing one record. The order of the stores is the contract of
 * falcon_shm.h: seq 0, the fields, seq, head. The reader (agent/ring) pairs
 * with the release stores of seq and head.
 */
#ifndef FALCON_RING_H
#define FALCON_RING_H

#include "clock.h"
#include "hook.h"

/* Orders the stores before it and after it: free on x86, where stores stay in
 * order, so that only the compiler has to be held. */
static inline void falcon_store_fence(void) {
#if defined(__x86_64__)
  __asm__ volatile("" ::: "memory");
#else
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

static inline void falcon_ring_write(falcon_tls *t, const falcon_record *r) {
  uint64_t seq = t->head + 1;
  falcon_record *slot = &t->slots[t->head & (FALCON_RING_SLOTS - 1)];
  __atomic_store_n(&slot->seq, 0, __ATOMIC_RELAXED);
  falcon_store_fence();
  slot->enter = r->enter;
  slot->exit = r->exit;
  slot->count = r->count;
  slot->stream = r->stream;
  slot->ordinal = r->ordinal;
  slot->comm = r->comm;
  slot->peer = r->peer;
  slot->op = r->op;
  slot->dtype = r->dtype;
  slot->depth = r->depth;
  slot->flags = r->flags;
  slot->step = r->step;
  __atomic_store_n(&slot->seq, seq, __ATOMIC_RELEASE);
  __atomic_store_n(&t->ring->head, seq, __ATOMIC_RELEASE);
  t->head = seq;
}

static inline void falcon_record_put(falcon_tls *t, const falcon_record *r) {
  if (FALCON_UNLIKELY(!t->ring) && !falcon_ring_claim(t)) return;
  falcon_ring_write(t, r);
}

#endif
