/* Aborts, revokes, deaths and failed inits: everything returns, with the right
 * error. How fast is for benchmarks; here only hanging fails (the runner's limit). */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "world.h"

static unsigned char *state;

static cudaStream_t new_stream(void) {
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}

static int sum_of(ncclComm_t c, cudaStream_t s, int x) {
  int y = 0;
  OK(ncclAllReduce(&x, &y, 1, ncclInt, ncclSum, c, s));
  OK(cudaStreamSynchronize(s));
  return y;
}

static void *abort_now(void *arg) {
  ncclCommAbort(arg);
  return NULL;
}

static void *revoke_now(void *arg) {
  ncclCommRevoke(arg, NCCL_REVOKE_DEFAULT);
  return NULL;
}

static void *abort_soon(void *arg) {
  usleep(30000);
  OK(ncclCommAbort(arg));
  return NULL;
}

static void *revoke_soon(void *arg) {
  usleep(30000);
  OK(ncclCommRevoke(arg, NCCL_REVOKE_DEFAULT));
  return NULL;
}

/* Rank 0 waits for messages that never come; another of its threads gives up. */
static void abort_blocked(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  pthread_t t;
  int x[2];
  CHECK(sum_of(c, s, 1) == n);
  if (rank == 0) {
    OK(ncclRecv(&x[0], 1, ncclInt, 1, c, s));
    OK(ncclAllReduce(&x[1], &x[1], 1, ncclInt, ncclSum, c, s)); /* queued behind */
    OK(pthread_create(&t, NULL, abort_soon, c));
    CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
    OK(pthread_join(t, NULL));
    CHECK(ncclSend(&x[0], 1, ncclInt, 1, c, s) == ncclInvalidArgument); /* the handle is gone */
    CHECK(ncclCommAbort(c) == ncclInvalidArgument);
    OK(cudaStreamSynchronize(s)); /* the stream is usable again */
  } else { /* and the others, who wait for rank 0, get an error */
    OK(ncclAllReduce(x, x, 1, ncclInt, ncclSum, c, s));
    CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
    ncclResult_t async;
    OK(ncclCommGetAsyncError(c, &async));
    CHECK(async == ncclRemoteError);
    OK(ncclCommAbort(c));
  }
}

/* Under a framework a call whose peer is gone runs until its communicator is given up, as on a GPU. */
static void spins_until_given_up(int rank, int n, void *arg) {
  setenv("FALCON_LAB_HOLLOW", "1", 1);
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  pthread_t t;
  int x = 1;
  if (rank == n - 1) {
    meet_flag(arg, 0, n);
    OK(ncclCommAbort(c));
    return;
  }
  OK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, s));
  meet_flag(arg, 0, n);
  ncclResult_t async = ncclSuccess;
  while (async == ncclSuccess) OK(ncclCommGetAsyncError(c, &async));
  CHECK(async == ncclRemoteError);
  CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
  OK(pthread_create(&t, NULL, abort_soon, c));
  CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
  OK(pthread_join(t, NULL));
}

static void revoke_blocked(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  pthread_t t;
  int x = 1;
  CHECK(sum_of(c, s, 1) == n);
  meet_flag(arg, 0, n);
  if (rank == n - 1) { /* never joins in, like a frozen rank */
    meet_flag(arg, 1, n);
    OK(ncclCommAbort(c));
    return;
  }
  OK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, s));
  OK(pthread_create(&t, NULL, revoke_soon, c));
  CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
  OK(pthread_join(t, NULL));
  CHECK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, s) == ncclInvalidUsage);
  CHECK(strstr(ncclGetLastError(c), "revoked") != NULL);
  OK(ncclCommDestroy(c));
  meet_flag(arg, 1, n);
}

/* A paced transfer of minutes is cut short too. */
static void abort_paced(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  pthread_t t;
  static char x[1 << 17];
  OK(ncclAllReduce(x, x, sizeof x, ncclInt8, ncclSum, c, s));
  OK(pthread_create(&t, NULL, abort_soon, c));
  CHECK(cudaStreamSynchronize(s) != cudaErrorNotReady);
  OK(pthread_join(t, NULL));
}

/* The hook's thread and the framework's give up the same communicator. */
static void abort_race(int rank, int n, void *arg) {
  for (int i = 0; i < 20; i++) {
    board *b = (board *)arg + i;
    ncclComm_t c = world(b, rank, n);
    cudaStream_t s = new_stream();
    pthread_t t;
    int x = 1;
    ncclResult_t call = ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, s);
    CHECK(call == ncclSuccess || call == ncclRemoteError); /* the other rank may have given up already */
    OK(pthread_create(&t, NULL, rank ? abort_now : revoke_now, c));
    ncclResult_t rc = i % 2 ? ncclCommAbort(c) : ncclCommDestroy(c);
    CHECK(rc == ncclSuccess || rc == ncclInvalidArgument);
    OK(pthread_join(t, NULL));
    cudaStreamSynchronize(s); /* either outcome, but it returns */
    OK(cudaStreamDestroy(s));
  }
}

typedef struct two {
  board a, b;
} two;

/* A rank is killed inside a collective; the survivors see it, and go on as a
 * smaller world. */
static void death(int rank, int n, void *arg) {
  two *w = arg;
  ncclComm_t c = world(&w->a, rank, n);
  cudaStream_t s = new_stream();
  static float big[100000];
  CHECK(sum_of(c, s, rank) == n * (n - 1) / 2);
  meet_flag(&w->a, 0, n);
  if (rank == 1) raise(SIGKILL);
  ncclResult_t call = ncclAllReduce(big, big, 100000, ncclFloat, ncclSum, c, s);
  CHECK(call == ncclSuccess || call == ncclRemoteError); /* the death may be known already */
  ncclResult_t async = ncclSuccess;
  while (async == ncclSuccess) OK(ncclCommGetAsyncError(c, &async));
  CHECK(async == ncclRemoteError);
  cudaStreamSynchronize(s); /* returns; an error unless the call was refused already */
  CHECK(ncclAllReduce(big, big, 1, ncclFloat, ncclSum, c, s) == ncclRemoteError);
  OK(ncclCommAbort(c));
  int me = rank > 1 ? rank - 1 : rank;
  c = world(&w->b, me, n - 1);
  CHECK(sum_of(c, s, 1) == n - 1);
  OK(ncclCommDestroy(c));
}

/* The victim dies while all others already wait for it. */
static void death_inside(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  static float big[100000];
  CHECK(sum_of(c, s, 1) == n);
  if (rank == n - 1) {
    meet_flag(arg, 0, n);
    usleep(50000);
    raise(SIGKILL);
  }
  OK(ncclAllReduce(big, big, 100000, ncclFloat, ncclSum, c, s));
  meet_flag(arg, 0, n);
  CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
  ncclResult_t async;
  OK(ncclCommGetAsyncError(c, &async));
  CHECK(async == ncclRemoteError);
  OK(ncclCommDestroy(c)); /* also returns on a broken communicator */
}

/* What a peer sent before it left or died in good order still arrives. */
static void last_words(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  static char x[5 << 20];
  if (rank == 0) {
    memset(x, 9, sizeof x);
    OK(ncclSend(x, sizeof x, ncclInt8, 1, c, s));
    OK(cudaStreamSynchronize(s));
    meet_flag(arg, 0, n);
    OK(ncclCommDestroy(c));
    return;
  }
  meet_flag(arg, 0, n);
  usleep(100000);
  OK(ncclRecv(x, sizeof x, ncclInt8, 0, c, s));
  OK(cudaStreamSynchronize(s));
  CHECK(x[0] == 9 && x[sizeof x - 1] == 9);
  OK(ncclCommDestroy(c));
}

static void mismatch(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n);
  cudaStream_t s = new_stream();
  int x[4] = {0};
  if (rank == 0) OK(ncclSend(x, 2, ncclInt, 1, c, s));
  else OK(ncclRecv(x, 4, ncclInt, 0, c, s));
  cudaError_t rc = cudaStreamSynchronize(s);
  if (rank == 1) {
    CHECK(rc == cudaErrorLaunchFailure);
    CHECK(strstr(ncclGetLastError(c), "something else") != NULL);
  }
  meet_flag(arg, 0, n);
  OK(ncclCommAbort(c));
}

/* ---- init ---- */

static void rank_missing(int rank, int n, void *arg) {
  board *b = arg;
  ncclComm_t c;
  setenv("FALCON_LAB_INIT_TIMEOUT_S", "0.3", 1);
  if (rank == 0) {
    OK(ncclGetUniqueId(&b->id));
    atomic_store(&b->ready, 1);
  }
  while (!atomic_load(&b->ready)) usleep(200);
  CHECK(ncclCommInitRank(&c, n + 1, b->id, rank) == ncclRemoteError);
  CHECK(strstr(ncclGetLastError(NULL), "in time") != NULL);
}

static void sizes_differ(int rank, int n, void *arg) {
  board *b = arg;
  ncclComm_t c;
  if (rank == 0) {
    OK(ncclGetUniqueId(&b->id));
    atomic_store(&b->ready, 1);
  }
  while (!atomic_load(&b->ready)) usleep(200);
  CHECK(ncclCommInitRank(&c, n + rank, b->id, rank) != ncclSuccess);
}

static void root_dead(int rank, int n, void *arg) {
  board *b = arg;
  ncclComm_t c;
  if (rank == 0) {
    OK(ncclGetUniqueId(&b->id));
    atomic_store(&b->ready, 1);
    meet_flag(b, 0, n);
    return; /* and with the process goes the listener */
  }
  while (!atomic_load(&b->ready)) usleep(200);
  meet_flag(b, 0, n);
  usleep(100000);
  CHECK(ncclCommInitRank(&c, n, b->id, rank) == ncclRemoteError);
  ncclUniqueId junk;
  memset(&junk, 1, sizeof junk);
  CHECK(ncclCommInitRank(&c, n, junk, rank) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&c, 2, junk, 2) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(NULL, 2, junk, 0) == ncclInvalidArgument);
}

static ncclResult_t init_aside(board *b, ncclComm_t *c, int n, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (rank == 0) {
    OK(ncclGetUniqueId(&b->id));
    atomic_store(&b->ready, 1);
  }
  while (!atomic_load(&b->ready)) usleep(200);
  return ncclCommInitRankConfig(c, n, b->id, rank, &config);
}

static void in_background(int rank, int n, void *arg) {
  ncclComm_t c = NULL;
  ncclResult_t async = ncclInProgress;
  int size = 0, x = 0;
  while (rank && !atomic_load(&((board *)arg)->flag[0])) usleep(200); /* the others come later */
  CHECK(init_aside(arg, &c, n, rank) == ncclInProgress && c);
  if (rank == 0) {
    OK(ncclCommGetAsyncError(c, &async));
    CHECK(async == ncclInProgress);
    CHECK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, NULL) == ncclInvalidUsage);
    atomic_store(&((board *)arg)->flag[0], 1);
  }
  meet_flag(arg, 1, n);
  for (async = ncclInProgress; async == ncclInProgress; usleep(200)) OK(ncclCommGetAsyncError(c, &async));
  OK(async);
  OK(ncclCommCount(c, &size));
  CHECK(size == n && sum_of(c, new_stream(), 1) == n);
  OK(ncclCommDestroy(c));
}

/* The peer never comes; giving up does not take as long as waiting for it. */
static void background_alone(int rank, int n, void *arg) {
  ncclComm_t c = NULL;
  ncclResult_t async;
  setenv("FALCON_LAB_INIT_TIMEOUT_S", "1000", 1);
  CHECK(init_aside(arg, &c, n + 1, rank) == ncclInProgress && c);
  usleep(20000);
  OK(ncclCommGetAsyncError(c, &async));
  CHECK(async == ncclInProgress);
  meet_flag(arg, 1, n); /* a rank that gives up fails the other's init */
  if (rank) OK(ncclCommAbort(c));
  else OK(ncclCommDestroy(c));
  CHECK(ncclCommGetAsyncError(c, &async) == ncclInvalidArgument);
}

static void background_fails(int rank, int n, void *arg) {
  ncclComm_t c = NULL;
  ncclResult_t async = ncclInProgress;
  setenv("FALCON_LAB_INIT_TIMEOUT_S", "0.3", 1);
  CHECK(init_aside(arg, &c, n + 1, rank) == ncclInProgress);
  while (async == ncclInProgress) OK(ncclCommGetAsyncError(c, &async));
  CHECK(async == ncclRemoteError && strstr(ncclGetLastError(c), "in time"));
  OK(ncclCommAbort(c));
}

static void *abort_when_known(void *arg) {
  ncclComm_t *where = arg, c = NULL;
  while (!(c = __atomic_load_n(where, __ATOMIC_ACQUIRE))) usleep(200);
  usleep(20000);
  OK(ncclCommAbort(c));
  return NULL;
}

/* A creation that blocks, for a rank that never comes, ends when another thread
 * aborts it: the handle is known while the call still waits. One rank alone, for
 * a second one's giving up would end the first one's call before its own abort. */
static void init_given_up(int rank, int n, void *arg) {
  board *b = arg;
  static ncclComm_t c;
  pthread_t t;
  setenv("FALCON_LAB_INIT_TIMEOUT_S", "1000", 1);
  if (rank == 0) {
    OK(ncclGetUniqueId(&b->id));
    atomic_store(&b->ready, 1);
  }
  while (!atomic_load(&b->ready)) usleep(200);
  OK(pthread_create(&t, NULL, abort_when_known, &c));
  CHECK(ncclCommInitRank(&c, n + 1, b->id, rank) == ncclRemoteError && !c);
  OK(pthread_join(t, NULL));
}

static void init_in_group_given_up(int rank, int n, void *arg) {
  board *b = arg;
  static ncclComm_t c;
  pthread_t t;
  setenv("FALCON_LAB_INIT_TIMEOUT_S", "1000", 1);
  if (rank == 0) {
    OK(ncclGetUniqueId(&b->id));
    atomic_store(&b->ready, 1);
  }
  while (!atomic_load(&b->ready)) usleep(200);
  OK(pthread_create(&t, NULL, abort_when_known, &c));
  OK(ncclGroupStart());
  OK(ncclCommInitRank(&c, n + 1, b->id, rank));
  CHECK(ncclGroupEnd() == ncclRemoteError && !c);
  OK(pthread_join(t, NULL));
}

/* A split waits for a member that never joins in; revoking the parent ends it. */
static void split_given_up(int rank, int n, void *arg) {
  ncclComm_t c = world(arg, rank, n), child = NULL;
  pthread_t t;
  CHECK(sum_of(c, new_stream(), 1) == n);
  meet_flag(arg, 0, n);
  if (rank < n - 1) {
    OK(pthread_create(&t, NULL, revoke_soon, c));
    CHECK(ncclCommSplit(c, 0, rank, &child, NULL) != ncclSuccess && !child);
    OK(pthread_join(t, NULL));
  }
  meet_flag(arg, 1, n);
  OK(ncclCommAbort(c));
}

/* A rank is stopped while the others wait for it: nothing tells them, and they
 * wait until they give up. Continued, it finds that they are gone. */
static void frozen(int rank, int n, void *arg) {
  board *b = arg;
  ncclComm_t c = world(b, rank, n);
  cudaStream_t s = new_stream();
  ncclResult_t async;
  int x = 1;
  CHECK(sum_of(c, s, 1) == n);
  b->word[rank] = getpid();
  meet_flag(b, 0, n);
  if (rank == n - 1) {
    raise(SIGSTOP);
    for (async = ncclSuccess; async == ncclSuccess; usleep(200)) OK(ncclCommGetAsyncError(c, &async));
    CHECK(async == ncclRemoteError);
    OK(ncclCommAbort(c));
    return;
  }
  OK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, s));
  usleep(100000);
  CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
  OK(ncclCommGetAsyncError(c, &async));
  CHECK(async == ncclSuccess);
  meet_flag(b, 1, n - 1);
  OK(ncclCommRevoke(c, NCCL_REVOKE_DEFAULT));
  CHECK(cudaStreamSynchronize(s) == cudaErrorLaunchFailure);
  OK(cudaMemsetAsync(&x, 0, sizeof x, s)); /* what follows on the stream runs */
  OK(cudaStreamSynchronize(s));
  OK(ncclCommDestroy(c));
  meet_flag(b, 2, n - 1);
  if (rank == 0) OK(kill((pid_t)b->word[n - 1], SIGCONT));
}

int main(void) {
  unsetenv("FALCON_LAB_STATE");
  run_ranks("abort releases a blocked rank", 3, abort_blocked, shared(sizeof(board)), 10);
  run_ranks("under a framework a call spins until it is given up", 3, spins_until_given_up, shared(sizeof(board)), 10);
  run_ranks("revoke releases, then refuses", 3, revoke_blocked, shared(sizeof(board)), 10);
  run_ranks("two threads give up at once", 2, abort_race, shared(20 * sizeof(board)), 20);
  run_ranks("a killed rank, and a smaller world", 4, death, shared(sizeof(two)), 10);
  run_ranks("a rank killed while awaited", 4, death_inside, shared(sizeof(board)), 10);
  run_ranks("messages of a rank that left", 2, last_words, shared(sizeof(board)), 10);
  run_ranks("mismatched send and receive", 2, mismatch, shared(sizeof(board)), 10);
  run_ranks("a rank missing at init", 2, rank_missing, shared(sizeof(board)), 10);
  run_ranks("init in the background", 3, in_background, shared(sizeof(board)), 10);
  run_ranks("background init given up", 2, background_alone, shared(sizeof(board)), 10);
  run_ranks("background init that fails", 2, background_fails, shared(sizeof(board)), 10);
  run_ranks("a blocking init given up", 1, init_given_up, shared(sizeof(board)), 10);
  run_ranks("a group of inits given up", 1, init_in_group_given_up, shared(sizeof(board)), 10);
  run_ranks("a split given up with its parent", 3, split_given_up, shared(sizeof(board)), 10);
  run_ranks("a stopped rank", 3, frozen, shared(sizeof(board)), 10);
  run_ranks("ranks that disagree on the size", 2, sizes_differ, shared(sizeof(board)), 10);
  run_ranks("a dead unique id", 2, root_dead, shared(sizeof(board)), 10);
  state = state_create(2, 2);
  state_set(&state_header(state)->intra_bytes_per_s, 1000); /* 128 KiB take 131 s */
  run_ranks("abort cuts a paced transfer", 2, abort_paced, shared(sizeof(board)), 10);
  return 0;
}
