/* The recorded calls: one wrapper each, made from the list in api.h. */
#include "pause.h"
#include "ring.h"
#include "suspend.h"

/* Counts the call at its communicator's gate, and is held there by a pause.
 * False: the communicator is gone, NCCL must not be called. */
static inline bool gate_pass(falcon_tls *t, falcon_span *s, void *comm, void *stream) {
  uint64_t *gate = &falcon_hook.comms[s->comm].gate, g = __atomic_load_n(gate, __ATOMIC_RELAXED);
  do {
    if (FALCON_UNLIKELY(g & FALCON_GATE_ARMED)) return falcon_gate_slow(t, s, comm, stream);
  } while (FALCON_UNLIKELY(!__atomic_compare_exchange_n(gate, &g, FALCON_GATE_COUNT(g + 1), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)));
  atomic_store_explicit(&falcon_streams[s->comm], (uintptr_t)stream + 1, memory_order_relaxed);
  s->ordinal = FALCON_GATE_COUNT(g);
  return true;
}

/* A refused call makes its group fail at its end, as NCCL has it. */
int falcon_comm_error(void *handle) {
  falcon_busy_leave(&falcon_thread);
  int rc = falcon_comm_closed(handle) ? NCCL_REMOTE_ERROR : NCCL_INVALID_USAGE;
  if (falcon_thread.depth && rc == NCCL_REMOTE_ERROR) falcon_thread.group_rc = rc;
  return rc;
}

static inline bool call_begin(falcon_tls *t, falcon_span *s, void *comm, uint32_t op, void *stream) {
  s->enter = falcon_ticks();
  falcon_busy_enter(t);
  s->comm = falcon_comm_find(comm);
  s->ordinal = 0;
  s->step = atomic_load_explicit(&falcon_hook.step, memory_order_relaxed);
  s->flags = t->depth ? FALCON_REC_GROUPED : 0;
  s->timed = -1;
  s->order = 0;
  if (__builtin_expect(s->comm < FALCON_COMMS_MAX, 1)) {
    if (FALCON_UNLIKELY(!gate_pass(t, s, comm, stream))) return false;
  } else if (s->comm == FALCON_COMM_ENDED || s->comm == FALCON_COMM_CLOSED) {
    return false;
  }
  if (op >= FALCON_OP_PUTSIGNAL && s->comm < FALCON_COMMS_MAX && !(__atomic_load_n(&falcon_hook.comms[s->comm].traffic, __ATOMIC_RELAXED) & FALCON_TRAFFIC_ONESIDED))
    falcon_comm_mark(comm, FALCON_TRAFFIC_ONESIDED);
  falcon_cover(op >= FALCON_OP_SEND ? FALCON_COV_P2P : FALCON_COV_COLL);
  if (FALCON_UNLIKELY(atomic_load_explicit(&falcon_hook.profile, memory_order_relaxed))) falcon_profile_begin(t, s, stream);
  return true;
}

static inline void call_end(falcon_tls *t, falcon_span *s, uint32_t op, size_t count, int dtype, int peer, void *stream, int rc) {
  bool ok = rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS;
  falcon_record r = {
    .enter = s->enter, .exit = falcon_ticks(), .count = count, .stream = (uint64_t)(uintptr_t)stream,
    .ordinal = s->ordinal, .comm = s->comm, .peer = peer, .op = (uint8_t)op, .dtype = (uint8_t)dtype,
    .depth = (uint8_t)(t->depth < 255 ? t->depth : 255), .flags = (uint8_t)(s->flags | (ok ? 0 : FALCON_REC_FAILED)),
    .step = s->step,
  };
  if (count >= FALCON_HALF_COUNT && nccl_type_half(dtype) && FALCON_UNLIKELY(atomic_load_explicit(&falcon_hook.half, memory_order_relaxed) != (uint32_t)dtype))
    atomic_store_explicit(&falcon_hook.half, (uint32_t)dtype, memory_order_relaxed);
  if (FALCON_UNLIKELY(s->timed >= 0)) falcon_profile_end(t, s, &r, ok);
  if (FALCON_UNLIKELY(s->order)) falcon_gate_leave(t, s, stream);
  falcon_record_put(t, &r);
}

#define WRAP(name, params, args, opcode, count, dtype, peer_) WRAP_(name, params, args, opcode, count, dtype, peer_)
#define WRAP_(name, params, args, opcode, count, dtype, peer_) \
  FALCON_EXPORT int name params; \
  int name params { \
    FALCON_REAL(name, params); \
    falcon_tls *me = &falcon_thread; \
    if (FALCON_UNLIKELY(falcon_aside(me, bound) || !falcon_active())) return real args; \
    falcon_span span; \
    if (FALCON_UNLIKELY(!call_begin(me, &span, comm, FALCON_OP_##opcode, stream))) return falcon_comm_error(comm); \
    me->inside = 1; \
    int rc = real args; \
    me->inside = 0; \
    falcon_busy_leave(me); \
    call_end(me, &span, FALCON_OP_##opcode, count, dtype, peer_, stream, rc); \
    return rc; \
  }

FALCON_CALLS(WRAP)
