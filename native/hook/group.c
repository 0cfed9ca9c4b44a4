/*
 * Groups: the depth is per thread, as NCCL keeps it, and is counted also while
 * the hook is inert (a group may be open when the first communicator comes).
 */
#include "pause.h"
#include "ring.h"

static void mark(falcon_tls *t, uint32_t op, uint64_t enter, int rc) {
  falcon_record r = {
    .enter = enter, .exit = falcon_ticks(), .comm = FALCON_COMM_NONE, .peer = -1, .op = (uint8_t)op,
    .depth = (uint8_t)(t->depth < 255 ? t->depth : 255),
    .flags = (uint8_t)(rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS ? 0 : FALCON_REC_FAILED),
    .step = atomic_load_explicit(&falcon_hook.step, memory_order_relaxed),
  };
  falcon_cover(FALCON_COV_GROUP);
  falcon_record_put(t, &r);
}

FALCON_EXPORT int ncclGroupStart(void);
int ncclGroupStart(void) {
  FALCON_REAL(ncclGroupStart, (void));
  falcon_tls *t = &falcon_thread;
  if (falcon_aside(t, bound)) return real();
  bool active = falcon_active();
  if (active && !t->depth && FALCON_UNLIKELY(__atomic_load_n(&falcon_hook.control->pause_order, __ATOMIC_RELAXED))) falcon_gate_group_start();
  uint64_t enter = active ? falcon_ticks() : 0;
  t->inside = 1;
  int rc = real();
  t->inside = 0;
  if (active) mark(t, FALCON_OP_GROUPSTART, enter, rc);
  if (rc == NCCL_SUCCESS) t->depth++;
  return rc;
}

/* A call of this group was refused without NCCL's knowledge. */
static int refused(falcon_tls *t, int rc) {
  int32_t why = t->group_rc;
  t->group_rc = 0;
  return why ? why : rc;
}

/* The outermost end launches: the profile stamps go before the record. */
FALCON_EXPORT int ncclGroupEnd(void);
int ncclGroupEnd(void) {
  FALCON_REAL(ncclGroupEnd, (void));
  falcon_tls *t = &falcon_thread;
  if (falcon_aside(t, bound)) return real();
  bool active = falcon_active();
  uint64_t enter = active ? falcon_ticks() : 0;
  t->inside = 1;
  int rc = real();
  t->inside = 0;
  if (t->depth) t->depth--;
  falcon_busy_leave(t);
  if (!t->depth && FALCON_UNLIKELY(t->prof_group)) falcon_profile_group_end(t, rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS);
  if (!t->depth && FALCON_UNLIKELY(t->passed_count)) falcon_gate_group_end(t);
  if (!t->depth && t->pending) rc = falcon_comm_settle(t, rc);
  if (!t->depth) rc = refused(t, rc);
  if (active) mark(t, FALCON_OP_GROUPEND, enter, rc);
  return rc;
}

/* Ends the group without launching it. */
FALCON_EXPORT int ncclGroupSimulateEnd(void *info);
int ncclGroupSimulateEnd(void *info) {
  FALCON_REAL(ncclGroupSimulateEnd, (void *));
  falcon_tls *t = &falcon_thread;
  if (falcon_aside(t, bound)) return real(info);
  t->inside = 1;
  int rc = real(info);
  t->inside = 0;
  if (t->depth) t->depth--;
  falcon_busy_leave(t);
  if (!t->depth && t->prof_group) falcon_profile_group_end(t, false);
  if (!t->depth && t->passed_count) falcon_gate_group_end(t);
  if (!t->depth && t->pending) rc = falcon_comm_settle(t, rc);
  if (!t->depth) rc = refused(t, rc);
  return rc;
}
