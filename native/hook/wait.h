/*
 * Does this process wait for its peers? It does when a thread has been inside
 * NCCL for FALCON_WAIT_INSIDE_NS without a new call of any thread, or when after
 * FALCON_WAIT_IDLE_NS without one a stream that carried calls has not drained.
 * It does not when its streams have drained and no thread is inside NCCL: then it
 * is in code of its own, or in storage. Device work of its own that takes longer
 * than that, with a call enqueued behind it, reads as waiting too.
 *
 * Guarantees. The side thread alone asks, and never blocks on the answer. A
 * stream is asked only while its communicator lives, at most once every
 * FALCON_WAIT_ASK_NS, not again once it has drained, never during a pause, a test
 * or a suspension, and never again once a capture of a graph was seen, or the
 * program exits: then FALCON_COV_WAITING is taken back.
 */
#ifndef FALCON_WAIT_H
#define FALCON_WAIT_H

#include "hook.h"

#define FALCON_WAIT_INSIDE_NS 200000000ull
#define FALCON_WAIT_IDLE_NS 500000000ull
#define FALCON_WAIT_ASK_NS 200000000ull

void falcon_wait_tick(bool excluded); /* side thread; excluded: a pause or a suspension is under way */
void falcon_wait_captured(void);           /* from now on no stream is asked */
void falcon_wait_close(void);              /* the process exits: the same, and a question under way has ended */

#endif
