/*
 * Memory that is registered with a communicator, and communication that kernels
 * of the program start themselves. Frameworks let go of registrations before they
 * abort; the handles of a communicator that a suspension aborted are gone with it,
 * and NCCL must not be given them: then letting go is only noted.
 */
#include "suspend.h"

#define OPEN(name, params, args) \
  FALCON_REAL(name, params); \
  falcon_tls *t = &falcon_thread; \
  if (falcon_aside(t, bound) || !falcon_active()) return real args

/* Calls once with the guard up; busy, so that an abort waits for it a while. */
#define GUARDED(t, rc, call) \
  do { (t)->inside = 1; (rc) = (call); (t)->inside = 0; falcon_busy_leave(t); } while (0)

/* True: NCCL may be given the communicator, which is busy then unless it was revoked. */
static bool may_release(falcon_tls *t, void *comm) {
  falcon_busy_enter(t);
  if (FALCON_UNLIKELY(falcon_comm_closed(comm))) {
    falcon_busy_leave(t);
    return falcon_comm_let_go(comm, false) == CLOSED_REVOKED;
  }
  return true;
}

#define RELEASE(name, params, args) \
  FALCON_EXPORT int name params; \
  int name params { \
    OPEN(name, params, args); \
    int rc = NCCL_SUCCESS; \
    if (may_release(t, comm)) GUARDED(t, rc, real args); \
    return rc; \
  }

#define REGISTER(name, params, args, traffic) \
  FALCON_EXPORT int name params; \
  int name params { \
    OPEN(name, params, args); \
    falcon_busy_enter(t); \
    if (FALCON_UNLIKELY(falcon_comm_closed(comm))) return falcon_comm_error(comm); \
    int rc; \
    GUARDED(t, rc, real args); \
    if (traffic && (rc == NCCL_SUCCESS || rc == NCCL_IN_PROGRESS)) falcon_comm_mark(comm, traffic); \
    return rc; \
  }

REGISTER(ncclCommRegister, (void *comm, void *buff, size_t size, void **handle), (comm, buff, size, handle), 0)
REGISTER(ncclCommWindowRegister, (void *comm, void *buff, size_t size, void **win, int flags), (comm, buff, size, win, flags), FALCON_TRAFFIC_WINDOWS)
REGISTER(ncclDevCommCreate, (void *comm, const void *wants, void *out), (comm, wants, out), FALCON_TRAFFIC_DEVICE)
RELEASE(ncclCommDeregister, (void *comm, void *handle), (comm, handle))
RELEASE(ncclCommWindowDeregister, (void *comm, void *win), (comm, win))
RELEASE(ncclDevCommDestroy, (void *comm, const void *out), (comm, out))
