/*
 * A pause by the cut (falcon_shm.h, FALCON_GATE_*): what the wrappers, the side
 * thread and the tests ask of it.
 *
 * Guarantees. No call beyond the cut passes and none before it is held while
 * the order holds. A call is held at most FALCON_PAUSE_MAX_MS (less by
 * $FALCON_PAUSE_MAX_MS) from the moment the order was first seen, whatever the
 * agent writes and whether or not it lives; then everything goes on by itself.
 * A held thread holds no lock, of ours or of NCCL. Creation, end and queries of
 * communicators are never held. Calls that pass pay for none of this while no
 * gate is armed.
 *
 * QUIET means: all armed communicators are at their cut, no call is on its way
 * into NCCL, and every stream that carried a call since the order was taken up
 * has drained, the held calls' streams up to where they are held; where a group
 * is held, whose streams are not known yet, the default stream. Asked are
 * events of our own, never a stream of the program: it may be gone.
 */
#ifndef FALCON_PAUSE_H
#define FALCON_PAUSE_H

#include "hook.h"

#define FALCON_PAUSE_BEAT_NS 1000000ull /* looks of the side thread while a pause is under way */

/* wrappers: the slow path of an armed gate. False: the communicator is gone,
 * NCCL must not be called. */
FALCON_COLD bool falcon_gate_slow(falcon_tls *t, falcon_span *s, void *handle, void *stream);
FALCON_COLD void falcon_gate_leave(falcon_tls *t, falcon_span *s, void *stream);
FALCON_COLD void falcon_gate_group_start(void);
FALCON_COLD void falcon_gate_group_end(falcon_tls *t);

/* table.c: a communicator ends, and is its pointer not to be used any more? */
void falcon_pause_comm_ended(void *handle, const falcon_comm *c, bool forget);
bool falcon_pause_gone(void *handle);

void falcon_pause_captured(void);          /* a call is part of a graph: from now on pauses are refused */
bool falcon_pause_tick(uint64_t now_ns);   /* side thread; true while a pause is under way */
bool falcon_pause_held(void);              /* at the cut: a profile window ends */
uint64_t falcon_pause_quiet(uint64_t *until_ns); /* order that is QUIET, 0 = none */
void falcon_pause_suspend(bool on);         /* ends a pause, and lets none begin while on */
void falcon_pause_load(void);
void falcon_pause_close(void);             /* the process ends: nothing is held any more, for good */
void falcon_pause_forked(void);

/* drain.c: the streams that carried calls. */
enum falcon_drain { DRAIN_DONE = 0, DRAIN_RUNNING = 1, DRAIN_BROKEN = 2 };
bool falcon_drain_prepare(int device);     /* on that device's thread */
bool falcon_drain_ready(void);
void falcon_drain_reset(void);
bool falcon_drain_here(void); /* is the caller on the device of the events? */
uint32_t falcon_drain_note(uint32_t comm, void *stream); /* enum falcon_pause_reason, 0 = noted */
enum falcon_drain falcon_drain_ask(void);
void falcon_drain_forked(void);

#endif
