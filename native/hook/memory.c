/*
 * What else frameworks do with a communicator: memory and operators that belong to
 * it, communication that kernels start themselves, questions. One that a suspension
 * ended may be freed, and NCCL must not be given it: then nothing is made or
 * answered, and letting go of what is gone with it is only noted.
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

#define USE(name, params, args, traffic) \
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

USE(ncclCommRegister, (void *comm, void *buff, size_t size, void **handle), (comm, buff, size, handle), 0)
USE(ncclCommWindowRegister, (void *comm, void *buff, size_t size, void **win, int flags), (comm, buff, size, win, flags), FALCON_TRAFFIC_WINDOWS)
USE(ncclDevCommCreate, (void *comm, const void *wants, void *out), (comm, wants, out), FALCON_TRAFFIC_DEVICE)
RELEASE(ncclCommDeregister, (void *comm, void *handle), (comm, handle))
RELEASE(ncclCommWindowDeregister, (void *comm, void *win), (comm, win))
RELEASE(ncclDevCommDestroy, (void *comm, const void *out), (comm, out))

USE(ncclRedOpCreatePreMulSum, (int *op, void *scalar, int type, int where, void *comm), (op, scalar, type, where, comm), 0)
RELEASE(ncclRedOpDestroy, (int op, void *comm), (op, comm))
USE(ncclCommCount, (void *comm, int *n), (comm, n), 0)
USE(ncclCommUserRank, (void *comm, int *rank), (comm, rank), 0)
USE(ncclCommCuDevice, (void *comm, int *device), (comm, device), 0)
USE(ncclCommGetUniqueId, (void *comm, void *id), (comm, id), 0)
USE(ncclCommMemStats, (void *comm, int what, uint64_t *value), (comm, what, value), 0)
USE(ncclCommSuspend, (void *comm, int flags), (comm, flags), 0)
USE(ncclCommResume, (void *comm), (comm), 0)
USE(ncclWinGetUserPtr, (void *comm, void *win, void **out), (comm, win, out), 0)
