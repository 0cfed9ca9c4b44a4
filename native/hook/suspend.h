/*
 * A suspension (falcon_shm.h): survivors of a fault are released from calls
 * that would never end, and the framework unwinds to falcon_job_park.
 *
 * Guarantees. Each communicator of an older generation is revoked (or aborted,
 * where NCCL has no revoke or the communicator is still being made) once, all of
 * them beside each other, since one may be stuck on a stream behind another.
 * From then on calls on it fail with ncclRemoteError and do not reach NCCL;
 * finalizing, destroying or aborting it succeeds. A revoked one keeps its memory
 * until the framework destroys it: then it is destroyed in truth. An aborted one
 * is gone, and letting go of it is only noted. A process in its optimizer is
 * left alone until its next step tag, or the agent's deadline, and never longer
 * than FALCON_SUSPEND_MAX_MS.
 *
 * The side thread decides and never waits; each communicator is ended by a
 * detached thread of its own. Nothing here waits for the agent.
 */
#ifndef FALCON_SUSPEND_H
#define FALCON_SUSPEND_H

#include "hook.h"

#define FALCON_SUSPEND_BEAT_NS 2000000ull /* looks of the side thread while a suspension is under way */

bool falcon_suspend_tick(uint64_t now_ns); /* side thread; true while one is under way */
bool falcon_suspend_on(void);              /* one is in force: no communicator may be made */
void falcon_suspend_updating(bool on);     /* between begin_optimizer and end_optimizer */
bool falcon_suspend_obey(uint64_t generation); /* true once all communicators before it are ended */
uint64_t falcon_suspend_obeyed(void);
uint64_t falcon_suspend_generation(void);  /* of the communicators in use */
void falcon_suspend_rejoin(uint64_t generation); /* those made from now on are of this one */
void falcon_suspend_load(uint64_t generation);
void falcon_suspend_forked(void);

/* making.c: communicators whose creation has not returned yet. */
#define FALCON_MAKING_MAX 128u /* at once; those beyond are not ended while they are made */
uint32_t falcon_making_begin(void **where); /* a ticket */
bool falcon_making_end(uint32_t ticket);   /* true: it was aborted meanwhile, the handle is gone */
uint32_t falcon_making_take(void **out, uint32_t max); /* handles to abort, each given once */
bool falcon_making_any(void);
void falcon_making_forked(void);

/* table.c: communicators that a suspension ended. */
enum falcon_closed { CLOSED_NOT = 0, CLOSED_NOW, /* being ended */ CLOSED_REVOKED, CLOSED_ABORTED /* freed */ };
uint32_t falcon_comm_close_all(void **out, uint32_t max); /* their handles, each now CLOSED_NOW */
void falcon_comm_closed_as(void *handle, enum falcon_closed how);
enum falcon_closed falcon_comm_closed(void *handle);
enum falcon_closed falcon_comm_let_go(void *handle, bool forget); /* waits while it is being ended */
bool falcon_comm_asked(void *handle);      /* begin a query that NCCL answers at once; false: it is closed */
void falcon_comm_answered(void);
void falcon_comm_await_answers(void);      /* of closed ones: until no such query is under way */

#endif
