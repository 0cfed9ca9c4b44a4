/* Cases of what could end the program by way of the hook's file, and does not: a limit on
 * the size of files, a file that is truncated, calls that seccomp refuses. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "agent.h"
#include "nccl.h"

#define CALLS 50

/* A training process goes on: NCCL answers every call. */
static void train(void) {
  void *c = NULL;
  CHECK(!ncclCommInitRank(&c, 4, test_id(1), 1) && c);
  for (int i = 0; i < CALLS; i++) CHECK(!ncclAllReduce(NULL, NULL, 8, 7, 0, c, NULL));
  CHECK(!ncclCommDestroy(c));
}

/* ---- a limit on the size of files ---- */

static void limit_size(rlim_t bytes) { CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes})); }

/* No file, or one that says so, and no signal. */
static void case_size_limit(void) {
  limit_size(1 << 20);
  train();
  char *path = (char *)shm_path();
  struct stat st;
  CHECK(stat(path, &st) || st.st_size <= 1 << 20);
}

static void case_no_files(void) {
  limit_size(0);
  train();
}

static volatile sig_atomic_t seen;
static void note(int sig) { seen = sig; }

/* The program's own SIGXFSZ, held back by itself, still comes to it. */
static void case_size_limit_of_the_program(void) {
  sigset_t size;
  sigemptyset(&size);
  sigaddset(&size, SIGXFSZ);
  CHECK(signal(SIGXFSZ, note) != SIG_ERR && !sigprocmask(SIG_BLOCK, &size, NULL) && !raise(SIGXFSZ));
  limit_size(1 << 20);
  train();
  CHECK(!seen && !sigprocmask(SIG_UNBLOCK, &size, NULL) && seen == SIGXFSZ);
}

/* The end in order can't be written down, and is one all the same. */
static void case_size_limit_at_the_end(void) {
  train();
  CHECK((b = shm_map()));
  __atomic_store_n(&CTL(b)->agent_alive_ns, now_ns(), __ATOMIC_RELEASE);
  limit_size(0);
}

/* ---- a file that is truncated ---- */

static void truncated_to(off_t bytes) {
  void *c = NULL;
  CHECK(!ncclCommInitRank(&c, 4, test_id(1), 1) && (b = shm_map()));
  CHECK(!ncclAllReduce(NULL, NULL, 8, 7, 0, c, NULL) && !truncate(shm_path(), bytes));
  for (int i = 0; i < CALLS; i++) CHECK(!ncclAllReduce(NULL, NULL, 8, 7, 0, c, NULL));
  usleep(400000); /* the side thread beats four times */
  void *d = NULL;
  CHECK(!ncclCommSplit(c, 0, 0, &d, NULL));
  for (int i = 0; i < CALLS; i++) CHECK(!ncclAllReduce(NULL, NULL, 8, 7, 0, d, NULL));
  CHECK(!ncclCommDestroy(d) && !ncclCommDestroy(c));
}

static void case_truncated(void) { truncated_to(0); }
static void case_truncated_rings(void) { truncated_to(FALCON_PAGE * 16); }

/* The side thread is the first to touch it. */
static void case_truncated_idle(void) {
  void *c = NULL;
  CHECK(!ncclCommInitRank(&c, 4, test_id(1), 1) && shm_map() && !truncate(shm_path(), 0));
  usleep(500000);
  CHECK(!ncclAllReduce(NULL, NULL, 8, 7, 0, c, NULL));
}

/* ---- SIGBUS that is none of ours ---- */

/* A page of the program that faults. */
static char *bad_page(void) {
  char name[1024];
  snprintf(name, sizeof name, "%s/crash.crash", getenv("FALCON_SHM_DIR"));
  int fd = open(name, O_RDWR | O_CREAT, 0600);
  CHECK(fd >= 0 && !unlink(name) && !ftruncate(fd, FALCON_PAGE));
  char *p = mmap(NULL, FALCON_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(p != MAP_FAILED && !ftruncate(fd, 0));
  return p;
}

static int end_of_child(void (*run)(void)) {
  int status;
  pid_t pid = fork();
  if (!pid) {
    CHECK(!setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
    signal(SIGBUS, SIG_DFL); /* a sanitizer has its own */
    train();
    run();
    _exit(9);
  }
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
  char path[1024];
  snprintf(path, sizeof path, "%s/falcon.t.%d", getenv("FALCON_SHM_DIR"), (int)pid);
  unlink(path);
  return status;
}

static void touch_bad_page(void) { *(volatile char *)bad_page() = 1; }
static void send_bus(void) { kill(getpid(), SIGBUS); }

static void case_other_faults_end_it(void) {
  int status = end_of_child(touch_bad_page);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
  status = end_of_child(send_bus);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static void leave(int sig) { _exit(sig == SIGBUS ? 42 : 1); }

/* What the program had set before is asked, for what is its own. */
static void own_handler(void (*run)(void)) {
  CHECK(signal(SIGBUS, leave) != SIG_ERR);
  train();
  run();
  exit(1);
}
static void fault_with_handler(void) { own_handler(touch_bad_page); }
static void sent_with_handler(void) { own_handler(send_bus); }

static void case_own_handler(void) {
  void (*const ways[])(void) = {fault_with_handler, sent_with_handler};
  for (int i = 0; i < 2; i++) {
    int status;
    pid_t pid = fork();
    if (!pid) ways[i]();
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 42);
    char path[1024];
    snprintf(path, sizeof path, "%s/falcon.t.%d", getenv("FALCON_SHM_DIR"), (int)pid);
    unlink(path);
  }
}

/* A handler that the program sets later is the program's. */
static void case_later_handler(void) {
  train();
  struct sigaction now;
  CHECK(signal(SIGBUS, leave) != SIG_ERR && !ncclGroupStart() && !ncclGroupEnd());
  CHECK(!sigaction(SIGBUS, NULL, &now) && now.sa_handler == leave);
}

/* ---- calls that are refused ---- */

#define LOAD_WORD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define REFUSE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void refuse(struct sock_filter *code, unsigned short n) {
  struct sock_fprog program = {n, code};
  CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
    printf("skip: no seccomp here: %s\n", strerror(errno));
    exit(0);
  }
}

static void refuse_call(unsigned call) {
  struct sock_filter code[] = {LOAD_WORD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), REFUSE, ALLOW};
  refuse(code, sizeof code / sizeof *code);
  train();
}

static void case_no_ftruncate(void) { refuse_call(SYS_ftruncate); }
static void case_no_madvise(void) { refuse_call(SYS_madvise); }
static void case_no_open(void) { refuse_call(SYS_openat); }
static void case_no_sigaction(void) { refuse_call(SYS_rt_sigaction); }
static void case_no_clone(void) {
  struct sock_filter code[] = {LOAD_WORD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 2, 0),
                               BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0), ALLOW, REFUSE};
  refuse(code, sizeof code / sizeof *code);
  train();
}

/* Memory that is shared; what the program maps for itself it gets. */
static void case_no_shared_memory(void) {
  struct sock_filter code[] = {LOAD_WORD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3), LOAD_WORD(args[3]),
                               BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1), REFUSE, ALLOW};
  refuse(code, sizeof code / sizeof *code);
  train();
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
    CASE(size_limit), CASE(no_files), CASE(size_limit_of_the_program), CASE(size_limit_at_the_end), CASE(truncated),
    CASE(truncated_rings), CASE(truncated_idle), CASE(other_faults_end_it), CASE(own_handler), CASE(later_handler),
    CASE(no_ftruncate), CASE(no_madvise), CASE(no_open), CASE(no_sigaction), CASE(no_clone), CASE(no_shared_memory),
  };
  return run_case(cases, sizeof cases / sizeof *cases, argc, argv);
}
