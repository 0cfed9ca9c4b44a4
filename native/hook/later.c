/*
 * Children of a communicator that never blocks: NCCL makes them in the background
 * and stores the handle only when they are ready. Until then it owns the place of
 * the handle; afterwards the place may be gone at any time, with the program's
 * stack, or hold something else. So what lies there is never given to NCCL: a
 * handle that the program uses is compared with it, and read through the kernel,
 * which answers for memory that is gone.
 */
#include "suspend.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LATER_MAX 64u /* at once; with more the oldest is found by its first call, with id 0 */

typedef struct { void **where; falcon_comm_spec spec; char name[FALCON_NAME_BYTES]; } later;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static later list[LATER_MAX];
static uint32_t next;
static _Atomic uint32_t count;

/* NULL also where it can't be read. */
static void *read_handle(void **where) {
  int fd[2];
  void *handle = NULL;
  if (pipe2(fd, O_CLOEXEC | O_NONBLOCK)) return NULL;
  if (syscall(SYS_write, fd[1], where, sizeof handle) != sizeof handle || syscall(SYS_read, fd[0], &handle, sizeof handle) != sizeof handle) handle = NULL;
  close(fd[0]);
  close(fd[1]);
  return handle;
}

/* Under the lock. */
static void drop_entry(uint32_t i) {
  if (!list[i].where) return;
  list[i].where = NULL;
  atomic_fetch_sub(&count, 1);
}

void falcon_later_add(void **where, const falcon_comm_spec *spec) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < LATER_MAX; i++)
    if (list[i].where == where) drop_entry(i);
  drop_entry(next);
  later *l = &list[next];
  next = (next + 1) % LATER_MAX;
  l->spec = *spec;
  snprintf(l->name, sizeof l->name, "%s", spec->name ? spec->name : "");
  l->where = where;
  atomic_fetch_add(&count, 1);
  pthread_mutex_unlock(&lock);
}

bool falcon_later_any(void) { return atomic_load(&count) != 0; }

/* Under the lock. */
static void take_entry(uint32_t i, void *handle, falcon_comm_spec *spec, char name[FALCON_NAME_BYTES]) {
  *spec = list[i].spec;
  memcpy(name, list[i].name, FALCON_NAME_BYTES);
  spec->name = name;
  spec->handle = handle;
  drop_entry(i);
}

bool falcon_later_is(void *handle, falcon_comm_spec *spec, char name[FALCON_NAME_BYTES]) {
  bool found = false;
  if (!falcon_later_any()) return false;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < LATER_MAX && !found; i++) {
    found = list[i].where && read_handle(list[i].where) == handle;
    if (found) take_entry(i, handle, spec, name);
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void falcon_later_drop(void *parent) {
  if (!falcon_later_any()) return;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < LATER_MAX; i++)
    if (list[i].where && list[i].spec.from == parent) drop_entry(i);
  pthread_mutex_unlock(&lock);
}

void falcon_later_forked(void) { pthread_mutex_init(&lock, NULL); }
