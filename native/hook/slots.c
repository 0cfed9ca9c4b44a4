/* The communicators' places in the file: taken, filled and ended under one lock. */
#include "hook.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t next_slot;

void falcon_slots_lock(void) { pthread_mutex_lock(&lock); }

void falcon_slots_unlock(void) { pthread_mutex_unlock(&lock); }

uint64_t falcon_fnv(uint64_t h, const void *p, size_t n) {
  const unsigned char *b = p;
  for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 1099511628211ull;
  return h;
}

/* A slot never used, else the next one whose communicator is gone. */
static uint32_t take_slot(void) {
  for (uint32_t i = 0; i < FALCON_COMMS_MAX; i++) {
    uint32_t at = (next_slot + i) % FALCON_COMMS_MAX;
    if (falcon_hook.comms[at].state == FALCON_COMM_LIVE) continue;
    next_slot = at + 1;
    return at;
  }
  return FALCON_COMM_NONE;
}

static void write_begin(falcon_comm *c) {
  __atomic_fetch_add(&c->seq, 1, __ATOMIC_ACQ_REL);
}

static void write_end(falcon_comm *c) { __atomic_fetch_add(&c->seq, 1, __ATOMIC_RELEASE); }

static void copy_name(char *out, const char *name) {
  for (size_t i = 0; i < FALCON_NAME_BYTES; i++) {
    char c = name && i + 1 < FALCON_NAME_BYTES ? name[i] : 0;
    out[i] = c && (c < ' ' || c == 127) ? '?' : c;
    if (!c) name = NULL;
  }
}

/* Fields that the profile reads outside the lock. */
#define set32(where, v) __atomic_store_n(where, v, __ATOMIC_RELAXED)

static void fill(falcon_comm *c, const falcon_comm_spec *s) {
  write_begin(c);
  c->id = s->id;
  c->handle = (uint64_t)(uintptr_t)s->handle;
  __atomic_store_n(&c->gate, 0, __ATOMIC_RELAXED);
  c->generation++;
  set32(&c->state, FALCON_COMM_LIVE);
  set32(&c->size, s->size);
  set32(&c->rank, s->rank);
  set32(&c->device, -1);
  set32(&c->traffic, 0);
  for (uint32_t i = 0; i < FALCON_CHOICES_MAX; i++) set32(&c->choices[i], 0);
  c->parent = s->parent;
  copy_name(c->name, s->name);
  write_end(c);
}

uint32_t falcon_slot_take(const falcon_comm_spec *spec) {
  uint32_t slot = take_slot();
  if (slot != FALCON_COMM_NONE) fill(&falcon_hook.comms[slot], spec);
  return slot;
}

void falcon_slot_state(falcon_comm *c, uint32_t state) {
  write_begin(c);
  set32(&c->state, state);
  write_end(c);
}

void falcon_slot_place(falcon_comm *c, int size, int rank, int device) {
  write_begin(c);
  set32(&c->size, size);
  set32(&c->rank, rank);
  set32(&c->device, device);
  write_end(c);
}

void falcon_slot_traffic(falcon_comm *c, uint32_t traffic) {
  if ((c->traffic & traffic) == traffic) return;
  write_begin(c);
  set32(&c->traffic, c->traffic | traffic);
  write_end(c);
}
