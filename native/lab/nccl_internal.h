/*
 * Inside libnccl's stand-in.
 *
 * Threads: callers (API), stream workers (run plans), one service thread per
 * process (accepts connections, watches control connections for peers that
 * die, and finishes eager sends). Lock order: net lock, communicator, conn.
 * Nothing blocks under a lock.
 *
 * Connections of a communicator: one control connection per pair, made at
 * init, which carries nothing but a farewell, so that a death is seen at once;
 * and data connections, one per direction and channel, made when first used.
 */
#ifndef FALCON_LAB_NCCL_INTERNAL_H
#define FALCON_LAB_NCCL_INTERNAL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "include/nccl.h"
#include "lab_stream.h"
#include "nccl_events.h"

#define INIT_TIMEOUT_S   60            /* $FALCON_LAB_INIT_TIMEOUT_S overrides */
#define EAGER_BYTES      (8u << 20)    /* a send may leave this much unsent behind per peer */
#define SOCKET_BYTES     (1 << 20)     /* kernel buffers per data connection */
#define STAR_BYTES       (64u << 10)   /* up to here one rank adds for all: fewer wake-ups than a ring */
#define STASH_MAX        1024          /* connections that came before their communicator */
#define FAREWELL_NS      20000000      /* a farewell counts after what was sent before it */
#define CANCEL_SLICE_NS  10000000      /* a blocking helper that was given up returns within this time */
#define ERROR_BYTES      192
#define RANKS_MAX        4096

enum channel { CH_COLL = 0, CH_P2P = 1, CH_COUNT = 2, CH_CONTROL = 2 };
enum peer_state { PEER_UP = 0, PEER_LEFT = 1, PEER_DEAD = 2 };

/* A data connection. out: what eager sends left behind, under mu. */
typedef struct conn {
  int fd;
  uint32_t gen; /* of its entry in the service table */
  pthread_mutex_t mu;
  char *out;
  size_t out_at, out_len, out_cap;
} conn;

/* How to reach a rank and where it lives; travels in the rendezvous. */
typedef struct address {
  uint32_t ip;   /* network order */
  uint16_t port; /* network order */
  uint16_t reserved;
  int32_t node, device, pid, rank;
} address;

typedef struct peer {
  address at;
  int state;       /* enum peer_state, under the communicator's lock */
  int control;     /* fd, -1 before and after */
  uint32_t control_gen;
  conn *out[CH_COUNT], *in[CH_COUNT];
  uint64_t send_next, send_turn, recv_next, recv_turn; /* order of sends to and receives from it */
} peer;

enum comm_state { COMM_LIVE, COMM_FINALIZED, COMM_REVOKED, COMM_ABORTED };

struct ncclComm {
  ncclComm_t next; /* registry, under its lock, as refs */
  int refs;
  uint64_t id;
  int rank, n, device;
  uint64_t splits;
  pthread_mutex_t mu;
  pthread_cond_t cv;
  int state;
  ncclResult_t async;
  int making; /* init still runs in the background (blocking = 0) */
  int cancel; /* aborted or revoked: that init gives up; atomic */
  int broken; /* an operation failed here: the others in flight give up too */
  double scale;         /* of the bytes that a send or receive is modelled with, under mu; 0 = 1 */
  int pending, running; /* plans enqueued, plans inside fn or their paced end */
  uint64_t coll_next, coll_turn;
  struct link *links; /* plans to wake */
  char error[ERROR_BYTES];
  peer *peers;
  events_comm events; /* for a profiler plug-in */
};

enum op_kind { OP_ALLREDUCE, OP_REDUCE, OP_REDUCESCATTER, OP_ALLGATHER, OP_BROADCAST,
               OP_ALLTOALL, OP_GATHER, OP_SCATTER, OP_SEND, OP_RECV };

/* One call. bytes is of count elements; root is the peer of a send or receive. */
typedef struct call {
  struct call *next;
  ncclComm_t comm; /* holds a reference */
  cudaStream_t stream;
  enum op_kind kind;
  const void *send;
  void *recv;
  size_t count, bytes;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  uint64_t ticket;
  events_task task;
  int64_t began_ns, ended_ns; /* on the device, 0 = it has not run */
} call;

typedef struct link {
  struct link *next;
  struct plan *plan;
} link_t;

/* What one stream runs as one operation: a call, or a group's calls on it. */
typedef struct plan {
  call *calls;
  int n;
  link_t *links; /* one per call */
  int linked;
  atomic_int cancel; /* a communicator of it was aborted or revoked */
  int wake;          /* eventfd while running, -1 otherwise */
} plan;

/* Agreed between the members of a collective by taking the largest of each. */
typedef struct when {
  int64_t start_ns, transfer_ns;
} when;

typedef struct header {
  uint32_t magic;
  uint32_t kind; /* enum op_kind and what else must match */
  uint64_t bytes;
  when at;
} header;

/* One message to or from a peer, and how far it is. */
typedef struct xfer {
  ncclComm_t comm;
  int channel, peer, sending;
  void *buf;
  size_t bytes;
  header head; /* to send, or as received */
  uint32_t kind;
  size_t done; /* of header and payload together */
  int complete, ready;
} xfer;

/* nccl_net.c: the process's listener and service thread. */
ncclResult_t net_start(address *self);
int  net_listen(uint32_t *ip, uint16_t *port);
int  net_dial(uint32_t ip, uint16_t port, int64_t deadline_ns);
int  net_read_all(int fd, void *to, size_t n, int64_t deadline_ns);
int  net_write_all(int fd, const void *from, size_t n, int64_t deadline_ns);
int64_t net_deadline(void);
extern __thread const int *net_cancel; /* not NULL: blocking helpers of this thread give up once it is set */
int  net_cancelled(void);
uint32_t net_watch_control(ncclComm_t c, int rank, int fd);
uint32_t net_add_conn(conn *k);
void net_want_write(conn *k);
void net_forget(int fd, uint32_t gen);
int  net_hello(int fd, ncclComm_t c, int to, int channel, int64_t deadline_ns);
void net_claim_stash(void);

/* nccl_conn.c */
conn *conn_new(int fd);
void  conn_free(conn *k);
int   conn_flush_locked(conn *k); /* 1 emptied, 0 would block, -1 broken */
int   conn_queue_locked(conn *k, const void *p, size_t n);
ncclResult_t conn_out(ncclComm_t c, int channel, int to, conn **k);
conn *conn_in(ncclComm_t c, int channel, int from);

/* nccl_boot.c */
ncclResult_t boot_unique_id(ncclUniqueId *id);
ncclResult_t boot_init(ncclComm_t *out, int n, const ncclUniqueId *id, int rank, int device);
ncclResult_t boot_start(ncclComm_t *out, int n, const ncclUniqueId *id, int rank, int device);
ncclResult_t boot_mesh(ncclComm_t c);

/* nccl_comm.c */
extern pthread_mutex_t net_mu; /* the net lock: registry, service table, references */
ncclComm_t comm_new(uint64_t id, int n, int rank, int device);
void comm_publish(ncclComm_t c);
ncclComm_t comm_acquire(ncclComm_t handle); /* NULL for a bad handle */
ncclComm_t comm_find_locked(uint64_t id, int rank);
void comm_hold(ncclComm_t c);
void comm_release(ncclComm_t c);
void comm_discard(ncclComm_t c); /* an abort by whoever made it and has not passed the handle on, or shares it */
void comm_deliver_locked(ncclComm_t c, int from, int channel, int fd);
void comm_peer_gone_locked(ncclComm_t c, int rank, int left);
ncclResult_t comm_fail(ncclComm_t c, ncclResult_t why, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
ncclResult_t comm_usable(ncclComm_t c);
ncclResult_t nccl_error(ncclResult_t why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint64_t fnv64(uint64_t h, const void *p, size_t n);
#define FNV_START 14695981039346656037ull

/* nccl_xfer.c */
ncclResult_t xfers_run(plan *p, xfer *x, int n, int64_t deadline_ns);
xfer xfer_make(const call *c, int channel, int peer, int sending, const void *buf, size_t bytes, when at);

/* nccl_watch.c: what a profiler plug-in is given */
void watch_call(call *c);   /* it was issued */
void watch_launch(call *list);
void watch_device(call *list); /* its work is over */

/* nccl_plan.c */
ncclResult_t plan_submit(call *calls); /* of one stream; takes them over */
plan *plan_new(call *calls);
void plan_free(plan *p);
ncclResult_t plan_begin(plan *p);
void plan_end(plan *p);
ncclResult_t wait_turn(ncclComm_t c, plan *p, const uint64_t *turn, uint64_t ticket);
void pass_turn(ncclComm_t c, uint64_t *turn, uint64_t ticket);
void calls_free(call *list);

/* nccl_coll.c, nccl_p2p.c: move the plan's end. */
ncclResult_t coll_run(plan *p, call *c, when *at);
ncclResult_t coll_words(ncclComm_t c, const int64_t *mine, int words, int64_t *all);
ncclResult_t p2p_run(plan *p, int64_t start_ns, int64_t *end_ns);
/* nccl_model.c: modelled seconds. */
int64_t model_coll_ns(const call *c);
int64_t model_link_ns(ncclComm_t c, int peer, size_t bytes, int with_latency);

/* nccl_reduce.c */
size_t type_bytes(ncclDataType_t t); /* 0 for none */
int reducible(ncclDataType_t t);
void reduce_into(void *acc, const void *x, size_t count, ncclDataType_t t, ncclRedOp_t op);
void reduce_finish(void *acc, size_t count, ncclDataType_t t, ncclRedOp_t op, int n);

/* The names that nothing interposes: for calls from inside. */
ncclResult_t pncclCommAbort(ncclComm_t handle);
const char *pncclGetLastError(ncclComm_t handle);
ncclResult_t pncclGroupStart(void);
ncclResult_t pncclGroupEnd(void);

/* nccl_group.c */
ncclResult_t group_add(call *c);
int group_open(void);
void group_note(ncclResult_t rc);
ncclResult_t group_defer_init(ncclComm_t *out, int n, const ncclUniqueId *id, int rank, int device);

#endif
