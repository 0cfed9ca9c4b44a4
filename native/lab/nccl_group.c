/* Groups: per thread, what was called between the outermost start and end. */
#include <stdlib.h>

#include "nccl_internal.h"

#define GROUP_INITS_MAX 64

/* An init inside a group: it runs at the group's end, beside the others, since
 * one thread may create several ranks of a communicator that way. */
typedef struct init {
  ncclComm_t *out;
  int n, rank, device;
  ncclUniqueId id;
  ncclResult_t rc;
  char error[ERROR_BYTES];
  pthread_t thread;
} init;

static __thread int depth;
static __thread call *calls;
static __thread init *inits[GROUP_INITS_MAX];
static __thread int init_count;
static __thread ncclResult_t group_error;

int group_open(void) { return depth > 0; }

/* In the order of the communicators' ids, the same in every process, so that
 * collectives of several communicators can't wait for each other in a circle. */
static int before(const call *a, const call *b) { return a->comm->id < b->comm->id; }

static void insert(call **list, call *c) {
  while (*list && !before(c, *list)) list = &(*list)->next;
  c->next = *list;
  *list = c;
}

/* Takes c over. */
ncclResult_t group_add(call *c) {
  ncclComm_t m = c->comm;
  pthread_mutex_lock(&m->mu);
  if (c->kind == OP_SEND) c->ticket = m->peers[c->root].send_next++;
  else if (c->kind == OP_RECV) c->ticket = m->peers[c->root].recv_next++;
  else c->ticket = m->coll_next++;
  pthread_mutex_unlock(&m->mu);
  if (!depth) return plan_submit(c);
  insert(&calls, c);
  return ncclSuccess;
}

ncclResult_t group_defer_init(ncclComm_t *out, int n, const ncclUniqueId *id, int rank, int device) {
  init *i = init_count < GROUP_INITS_MAX ? malloc(sizeof *i) : NULL;
  if (!i) return nccl_error(ncclInvalidUsage, "at most %d communicators in one group", GROUP_INITS_MAX);
  *i = (init){.out = out, .n = n, .id = *id, .rank = rank, .device = device};
  inits[init_count++] = i;
  return ncclSuccess;
}

static void *run_init(void *arg) {
  init *i = arg;
  i->rc = boot_init(i->out, i->n, &i->id, i->rank, i->device);
  return NULL;
}

static ncclResult_t run_inits(void) {
  ncclResult_t rc = ncclSuccess;
  int started = 0;
  while (started < init_count && pthread_create(&inits[started]->thread, NULL, run_init, inits[started]) == 0) started++;
  for (int i = 0; i < init_count; i++) {
    if (i < started) pthread_join(inits[i]->thread, NULL);
    ncclResult_t one = i < started ? inits[i]->rc : ncclSystemError;
    if (rc == ncclSuccess && one != ncclSuccess) rc = nccl_error(one, "a communicator of the group could not be made");
    free(inits[i]);
  }
  init_count = 0;
  return rc;
}

/* Takes the calls of the first call's stream out of the list, in order. */
static call *take_stream(call **list) {
  cudaStream_t stream = (*list)->stream;
  call *mine = NULL, **tail = &mine;
  for (call **at = list; *at;) {
    call *c = *at;
    if (c->stream != stream) {
      at = &c->next;
      continue;
    }
    *at = c->next;
    c->next = NULL;
    *tail = c;
    tail = &c->next;
  }
  return mine;
}

static ncclResult_t run_group(void) {
  ncclResult_t rc = run_inits();
  call *list = calls;
  calls = NULL;
  while (list) {
    ncclResult_t one = plan_submit(take_stream(&list));
    if (rc == ncclSuccess) rc = one;
  }
  return rc;
}

static void end_group(void *rc) { *(ncclResult_t *)rc = run_group(); }

/* Calls that failed at once are remembered: the group as a whole failed too. */
void group_note(ncclResult_t rc) {
  if (depth && rc != ncclSuccess && group_error == ncclSuccess) group_error = rc;
}

#define API __attribute__((visibility("default")))
#define ALIAS(name) __attribute__((visibility("default"), weak, alias("p" #name)))

API ncclResult_t pncclGroupStart(void) {
  depth++;
  events_enter();
  return ncclSuccess;
}

API ncclResult_t pncclGroupEnd(void) {
  if (depth == 0) return nccl_error(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  ncclResult_t failed = group_error, rc = ncclSuccess;
  events_leave(--depth ? NULL : end_group, &rc);
  if (depth) return ncclSuccess;
  group_error = ncclSuccess;
  return failed != ncclSuccess ? failed : rc;
}

ALIAS(ncclGroupStart) ncclResult_t ncclGroupStart(void);
ALIAS(ncclGroupEnd) ncclResult_t ncclGroupEnd(void);
