/*
 * The process's listener and its service thread. The thread is started by the
 * first communicator or unique id and lives as long as the process; it owns
 * the epoll table and never blocks but in epoll_wait.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl_internal.h"

#define HELLO_MAGIC 0x464c4831u
#define FDS_MAX     65536
#define FAREWELL    'b'

typedef struct hello {
  uint32_t magic;
  uint16_t channel, reserved;
  uint64_t comm;
  int32_t from, to;
} hello;

enum entry_kind { E_FREE, E_LISTEN, E_GREETING, E_CONTROL, E_LEAVING, E_DATA };

/* What the service thread knows of a descriptor, under the net lock. */
typedef struct entry {
  enum entry_kind kind;
  uint32_t gen;
  ncclComm_t comm;
  int rank, left;   /* control: whose, and whether a farewell came */
  int64_t due_ns;   /* leaving: when it counts; greeting: when it is dropped */
  conn *conn;
  hello greeting;
  size_t got;
} entry;

static pthread_mutex_t start_mu = PTHREAD_MUTEX_INITIALIZER;
static int started, listener = -1, epfd = -1;
static address self_address;
static entry *table[FDS_MAX];
static uint32_t generation;
static int fd_high; /* no descriptor above it has an entry */

/* ---- blocking helpers for the rendezvous, each with a deadline ---- */

int64_t net_deadline(void) {
  const char *s = getenv("FALCON_LAB_INIT_TIMEOUT_S");
  double seconds = s ? atof(s) : INIT_TIMEOUT_S;
  if (!(seconds > 0 && seconds < 86400)) seconds = INIT_TIMEOUT_S;
  return falcon_lab_now_ns() + (int64_t)(seconds * 1e9);
}

__thread const int *net_cancel;

int net_cancelled(void) { return net_cancel && __atomic_load_n(net_cancel, __ATOMIC_ACQUIRE); }

static int wait_fd(int fd, short events, int64_t deadline_ns) {
  for (;;) {
    int64_t left = deadline_ns - falcon_lab_now_ns();
    if (left <= 0 || net_cancelled()) return -1;
    if (net_cancel && left > CANCEL_SLICE_NS) left = CANCEL_SLICE_NS;
    struct pollfd p = {fd, events, 0};
    int rc = poll(&p, 1, (int)(left / 1000000) + 1);
    if (rc > 0) return 0;
    if (rc < 0 && errno != EINTR) return -1;
  }
}

int net_read_all(int fd, void *to, size_t n, int64_t deadline_ns) {
  for (size_t got = 0; got < n;) {
    if (wait_fd(fd, POLLIN, deadline_ns)) return -1;
    ssize_t r = recv(fd, (char *)to + got, n - got, MSG_DONTWAIT);
    if (r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR)) return -1;
    if (r > 0) got += (size_t)r;
  }
  return 0;
}

int net_write_all(int fd, const void *from, size_t n, int64_t deadline_ns) {
  for (size_t put = 0; put < n;) {
    if (wait_fd(fd, POLLOUT, deadline_ns)) return -1;
    ssize_t r = send(fd, (const char *)from + put, n - put, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (r < 0 && errno != EAGAIN && errno != EINTR) return -1;
    if (r > 0) put += (size_t)r;
  }
  return 0;
}

static void tune(int fd) {
  int one = 1, bytes = SOCKET_BYTES;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* A listening socket on $FALCON_LAB_ADDR (127.0.0.1 when unset), any port. */
int net_listen(uint32_t *ip, uint16_t *port) {
  const char *host = getenv("FALCON_LAB_ADDR");
  struct sockaddr_in a = {.sin_family = AF_INET};
  socklen_t len = sizeof a;
  int bytes = SOCKET_BYTES;
  if (inet_pton(AF_INET, host && *host ? host : "127.0.0.1", &a.sin_addr) != 1) return -1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes); /* inherited by what it accepts */
  if (bind(fd, (void *)&a, sizeof a) || listen(fd, SOMAXCONN) || getsockname(fd, (void *)&a, &len)) {
    close(fd);
    return -1;
  }
  *ip = a.sin_addr.s_addr;
  *port = a.sin_port;
  return fd;
}

int net_dial(uint32_t ip, uint16_t port, int64_t deadline_ns) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {ip}};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  tune(fd);
  int err = connect(fd, (void *)&a, sizeof a) ? errno : 0;
  if (err == EINPROGRESS) {
    socklen_t len = sizeof err;
    if (wait_fd(fd, POLLOUT, deadline_ns) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len)) err = ETIMEDOUT;
  }
  if (!err) return fd;
  close(fd);
  return -1;
}

int net_hello(int fd, ncclComm_t c, int to, int channel, int64_t deadline_ns) {
  hello h = {.magic = HELLO_MAGIC, .channel = (uint16_t)channel, .comm = c->id, .from = c->rank, .to = to};
  return net_write_all(fd, &h, sizeof h, deadline_ns);
}

/* ---- the table ---- */

static uint64_t key(int fd, uint32_t gen) { return (uint64_t)gen << 32 | (uint32_t)fd; }

static entry *add_locked(int fd, enum entry_kind kind, uint32_t events) {
  entry *e = fd < FDS_MAX ? calloc(1, sizeof *e) : NULL;
  if (!e) return NULL;
  free(table[fd]);
  table[fd] = e;
  if (fd > fd_high) fd_high = fd;
  e->kind = kind;
  e->gen = ++generation;
  struct epoll_event ev = {.events = events, .data.u64 = key(fd, e->gen)};
  epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev);
  return e;
}

static void drop_locked(int fd) {
  epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
  free(table[fd]);
  table[fd] = NULL;
}

uint32_t net_watch_control(ncclComm_t c, int rank, int fd) {
  entry *e = add_locked(fd, E_CONTROL, EPOLLIN | EPOLLRDHUP);
  if (!e) return 0;
  e->comm = c;
  e->rank = rank;
  return e->gen;
}

uint32_t net_add_conn(conn *k) {
  pthread_mutex_lock(&net_mu);
  entry *e = add_locked(k->fd, E_DATA, 0);
  if (e) e->conn = k;
  uint32_t gen = e ? e->gen : 0;
  pthread_mutex_unlock(&net_mu);
  return gen;
}

/* The service thread writes the rest; called with the connection locked. */
void net_want_write(conn *k) {
  struct epoll_event ev = {.events = EPOLLOUT | EPOLLONESHOT, .data.u64 = key(k->fd, k->gen)};
  epoll_ctl(epfd, EPOLL_CTL_MOD, k->fd, &ev);
}

/* Before a descriptor is closed by its owner. */
void net_forget(int fd, uint32_t gen) {
  if (!gen) return;
  pthread_mutex_lock(&net_mu);
  if (table[fd] && table[fd]->gen == gen) drop_locked(fd);
  pthread_mutex_unlock(&net_mu);
}

/* ---- the service thread ---- */

static void greet_all(void) {
  for (;;) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE) usleep(10000); /* the listener stays readable: no spinning */
      return;
    }
    tune(fd);
    entry *e = add_locked(fd, E_GREETING, EPOLLIN);
    if (!e) close(fd);
    else e->due_ns = falcon_lab_now_ns() + 2ll * INIT_TIMEOUT_S * 1000000000;
  }
}

/* Hands a greeted connection to its communicator; 0 when there is none yet. */
static int introduce(int fd, entry *e) {
  ncclComm_t c = comm_find_locked(e->greeting.comm, e->greeting.to);
  if (!c) return 0;
  hello h = e->greeting;
  drop_locked(fd);
  if (h.from < 0 || h.from >= c->n || h.channel > CH_CONTROL) close(fd);
  else comm_deliver_locked(c, h.from, h.channel, fd);
  return 1;
}

static void read_greeting(int fd, entry *e) {
  ssize_t n = recv(fd, (char *)&e->greeting + e->got, sizeof e->greeting - e->got, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) e->got += (size_t)n;
  if (n <= 0 || (e->got == sizeof e->greeting && e->greeting.magic != HELLO_MAGIC)) {
    drop_locked(fd);
    close(fd);
  } else if (e->got == sizeof e->greeting && !introduce(fd, e)) {
    struct epoll_event ev = {.events = 0, .data.u64 = key(fd, e->gen)};
    epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &ev); /* stays in the stash until its communicator comes */
  }
}

void net_claim_stash(void) {
  int stashed = 0;
  for (int fd = 0; fd <= fd_high; fd++) {
    entry *e = table[fd];
    if (!e || e->kind != E_GREETING || e->got != sizeof e->greeting || introduce(fd, e)) continue;
    if (++stashed > STASH_MAX || e->due_ns < falcon_lab_now_ns()) {
      drop_locked(fd);
      close(fd);
    }
  }
}

/* A peer said farewell or its process is gone. What it sent before may still
 * be on its way through other descriptors, so it counts a moment later. */
static void read_control(int fd, entry *e) {
  char b = 0;
  ssize_t n = recv(fd, &b, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  e->kind = E_LEAVING;
  e->left = n == 1 && b == FAREWELL;
  e->due_ns = falcon_lab_now_ns() + FAREWELL_NS;
  epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
}

/* Counts due farewells; returns ms until the next one, -1 for none. */
static int farewells(void) {
  int64_t now = falcon_lab_now_ns(), next = INT64_MAX;
  for (int fd = 0; fd <= fd_high; fd++) {
    entry *e = table[fd];
    if (!e || e->kind != E_LEAVING || !e->comm) continue;
    if (e->due_ns <= now) {
      comm_peer_gone_locked(e->comm, e->rank, e->left);
      e->comm = NULL; /* counted; the descriptor stays its owner's to close */
    } else if (e->due_ns < next) {
      next = e->due_ns;
    }
  }
  return next == INT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}

static void handle(uint64_t k) {
  int fd = (int)(uint32_t)k;
  entry *e = table[fd];
  if (!e || e->gen != (uint32_t)(k >> 32)) return;
  if (e->kind == E_LISTEN) greet_all();
  if (e->kind == E_GREETING && e->got < sizeof e->greeting) read_greeting(fd, e);
  else if (e->kind == E_CONTROL) read_control(fd, e);
  else if (e->kind == E_DATA) {
    pthread_mutex_lock(&e->conn->mu);
    if (conn_flush_locked(e->conn) == 0) net_want_write(e->conn);
    pthread_mutex_unlock(&e->conn->mu);
  }
}

static void *serve(void *arg) {
  (void)arg;
  struct epoll_event ev[64];
  prctl(PR_SET_NAME, "falcon-nccl");
  for (int timeout = -1;;) {
    int n = epoll_wait(epfd, ev, 64, timeout);
    pthread_mutex_lock(&net_mu);
    for (int i = 0; i < n; i++) handle(ev[i].data.u64);
    timeout = farewells();
    pthread_mutex_unlock(&net_mu);
  }
  return NULL;
}

static int start_thread(void) {
  sigset_t all, old;
  pthread_t t;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int rc = pthread_create(&t, NULL, serve, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc == 0) pthread_detach(t);
  return rc;
}

static ncclResult_t start(void) {
  listener = net_listen(&self_address.ip, &self_address.port);
  epfd = epoll_create1(EPOLL_CLOEXEC);
  if (listener < 0 || epfd < 0) return nccl_error(ncclSystemError, "can't listen on FALCON_LAB_ADDR or 127.0.0.1");
  self_address.node = falcon_lab_node();
  self_address.pid = getpid();
  pthread_mutex_lock(&net_mu);
  entry *e = add_locked(listener, E_LISTEN, EPOLLIN);
  pthread_mutex_unlock(&net_mu);
  if (!e || start_thread()) return nccl_error(ncclSystemError, "can't start the service thread");
  return ncclSuccess;
}

ncclResult_t net_start(address *self) {
  pthread_mutex_lock(&start_mu);
  ncclResult_t rc = started ? ncclSuccess : start();
  if (rc == ncclSuccess) started = 1;
  *self = self_address;
  pthread_mutex_unlock(&start_mu);
  return rc;
}
