/* Calls as a profiler plug-in is given them (nccl_events.h). */
#include "nccl_internal.h"

#define TIMER_EPOCH 1000000000000000ull /* a GPU's timer has a zero of its own */

static const char *const funcs[] = {
  [OP_ALLREDUCE] = "AllReduce", [OP_REDUCE] = "Reduce", [OP_REDUCESCATTER] = "ReduceScatter", [OP_ALLGATHER] = "AllGather",
  [OP_BROADCAST] = "Broadcast", [OP_ALLTOALL] = "AlltoAll", [OP_GATHER] = "Gather", [OP_SCATTER] = "Scatter", [OP_SEND] = "Send", [OP_RECV] = "Recv",
};

static int is_p2p(const call *c) { return c->kind == OP_SEND || c->kind == OP_RECV; }

static events_call describe(const call *c, const char *func, int p2p, int root) {
  return (events_call){.func = func, .p2p = p2p, .type = (int)c->type, .root = root, .count = c->count, .stream = c->stream};
}

static void watch_part(call *c, const char *func, int peer) {
  events_task unused;
  events_call k = describe(c, func, 1, peer);
  events_issue(&c->comm->events, &k, &unused);
}

/* NCCL makes them of sends and receives, which is all that a plug-in is given. */
static void watch_pairs(call *c) {
  int n = c->comm->n, mine = c->comm->rank == c->root;
  int sends = c->kind == OP_ALLTOALL || (c->kind == OP_SCATTER && mine) ? n : c->kind == OP_GATHER;
  int receives = c->kind == OP_ALLTOALL || (c->kind == OP_GATHER && mine) ? n : c->kind == OP_SCATTER;
  for (int i = 0; i < sends; i++) watch_part(c, "Send", sends == n ? i : c->root);
  for (int i = 0; i < receives; i++) watch_part(c, "Recv", receives == n ? i : c->root);
}

/* Empty collectives, and those of one rank, are no events. */
void watch_call(call *c) {
  events_call k = describe(c, funcs[c->kind], is_p2p(c), c->root);
  if (!is_p2p(c) && (!c->count || c->comm->n == 1)) return;
  if (c->kind == OP_ALLTOALL || c->kind == OP_GATHER || c->kind == OP_SCATTER) watch_pairs(c);
  else events_issue(&c->comm->events, &k, &c->task);
}

void watch_launch(call *list) {
  for (call *c = list; c; c = c->next) events_launch(&c->comm->events, &c->task, 1);
}

void watch_device(call *list) {
  for (call *c = list; c; c = c->next)
    for (int channel = 0; c->ended_ns && channel < 2; channel++) {
      events_begin(&c->comm->events, &c->task, (uint64_t)c->began_ns + TIMER_EPOCH);
      events_end(&c->task, (uint64_t)c->ended_ns + TIMER_EPOCH);
    }
}
