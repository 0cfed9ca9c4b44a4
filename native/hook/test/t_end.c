/* Cases of how a process says that it ended in order. */
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

#include "agent.h"
#include "nccl.h"

static uint64_t fnv(const void *p, size_t n) {
  uint64_t h = 14695981039346656037ull;
  for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211ull;
  return h;
}

/* A training process as this program's child; it writes to ready when its file is there. */
typedef struct { pid_t pid; char *map; char path[1024], ended[1100]; } trainer;

static void train(void (*end)(void), int ready, int go) {
  void *c = NULL;
  char word;
  CHECK(!ncclCommInitRank(&c, 4, test_id(1), 1) && write(ready, "r", 1) == 1 && read(go, &word, 1) == 1);
  end();
}

/* The child lives until its agent has looked, so long ago as said; 0 = never. */
static trainer start(void (*end)(void), uint64_t looked_s) {
  trainer t = {0};
  int ready[2], go[2];
  char word;
  CHECK(!pipe(ready) && !pipe(go));
  t.pid = fork();
  if (!t.pid) {
    train(end, ready[1], go[0]);
    _exit(9);
  }
  CHECK(read(ready[0], &word, 1) == 1);
  snprintf(t.path, sizeof t.path, "%s/falcon.t.%d", getenv("FALCON_SHM_DIR"), (int)t.pid);
  snprintf(t.ended, sizeof t.ended, "%s.ended", t.path);
  int fd = open(t.path, O_RDWR);
  struct stat st;
  CHECK(fd >= 0 && !fstat(fd, &st));
  t.map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(t.map != MAP_FAILED && !close(fd));
  if (looked_s) __atomic_store_n(&CTL(t.map)->agent_alive_ns, now_ns() - (looked_s - 1) * 1000 * MS, __ATOMIC_RELEASE);
  CHECK(write(go[1], "g", 1) == 1);
  return t;
}

static int status_of(trainer *t) {
  int status;
  CHECK(waitpid(t->pid, &status, 0) == t->pid);
  return status;
}

static falcon_ended read_ended(const trainer *t) {
  falcon_ended e = {0};
  struct stat st;
  int fd = open(t->ended, O_RDONLY);
  CHECK(fd >= 0 && !fstat(fd, &st) && (st.st_mode & 0777) == 0600 && st.st_size == (off_t)sizeof e);
  CHECK(read(fd, &e, sizeof e) == (ssize_t)sizeof e && !close(fd) && !unlink(t->ended));
  CHECK(e.magic == FALCON_ENDED_MAGIC && e.bytes == sizeof e && e.check == fnv(&e, offsetof(falcon_ended, check)));
  CHECK(e.pid == (uint32_t)t->pid && e.start_mono_ns == HDR(t->map)->start_mono_ns && e.ended_ns == LOAD(CTL(t->map)->ended_ns));
  CHECK(e.rank == 2 && e.world == 8 && e.generation == 3 && !strcmp(e.job, "t") && !strcmp(e.device, "n1.g0"));
  return e;
}

static void finish(void) {
  void (*f)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "falcon_job_finish");
  CHECK(f);
  f();
}

static void by_exit(void) { exit(0); }
static void by_failure(void) { exit(7); }
static void by_finish(void) {
  finish();
  _exit(0); /* as a runtime without exit handlers does */
}
static void by_finish_and_exit(void) {
  finish();
  exit(5);
}
static void by_signal(void) { kill(getpid(), SIGKILL); }
static void by_underscore(void) { _exit(0); }

/* The mark is in the mapped file and in the small one, with the status. */
static void check_marked(void (*end)(void), int status, int32_t said) {
  trainer t = start(end, 1);
  CHECK(status_of(&t) == status);
  CHECK(access(t.path, F_OK) && LOAD(CTL(t.map)->ended_ns) && CTL(t.map)->ended_status == said);
  CHECK(read_ended(&t).ended_status == said);
}

static void case_exit(void) { check_marked(by_exit, 0, 0); }
static void case_failure(void) { check_marked(by_failure, 7 << 8, 7); }
static void case_finish(void) { check_marked(by_finish, 0, FALCON_ENDED_UNKNOWN); }
static void case_finish_and_exit(void) { check_marked(by_finish_and_exit, 5 << 8, 5); }

/* No mark, and the file stays as it is. */
static void check_unmarked(void (*end)(void), int status) {
  trainer t = start(end, 1);
  CHECK(status_of(&t) == status);
  CHECK(access(t.ended, F_OK) && !LOAD(CTL(t.map)->ended_ns) && !unlink(t.path));
}

static void case_killed(void) { check_unmarked(by_signal, SIGKILL); }
static void case_left(void) { check_unmarked(by_underscore, 0); }

/* Where no agent is, nothing is left for one. */
static void case_alone(void) {
  trainer t = start(by_exit, 0);
  CHECK(!status_of(&t) && LOAD(CTL(t.map)->ended_ns) && access(t.ended, F_OK) && access(t.path, F_OK));
  CHECK(!setenv("FALCON_PARK_AGENT_S", "1", 1)); /* the machine may be up for less than the default */
  t = start(by_exit, 4);
  CHECK(!status_of(&t) && access(t.ended, F_OK) && access(t.path, F_OK));
}

/* The child of a training process says nothing of its parent's end. */
static void case_fork(void) {
  void *c = NULL;
  CHECK(!ncclCommInitRank(&c, 4, test_id(1), 1));
  b = shm_map();
  CTL(b)->agent_alive_ns = now_ns();
  pid_t child = fork();
  if (!child) exit(3);
  int status;
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3 && !LOAD(CTL(b)->ended_ns) && !access(shm_path(), F_OK));
  CTL(b)->agent_alive_ns = 0;
}

static const test_case cases[] = {
  CASE(exit), CASE(failure), CASE(finish), CASE(finish_and_exit), CASE(killed), CASE(left), CASE(alone), CASE(fork),
};

int main(int argc, char **argv) { return run_case(cases, sizeof cases / sizeof *cases, argc, argv); }
