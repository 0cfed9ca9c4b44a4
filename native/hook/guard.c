/*
 * What the file could do to the program: nothing.
 *
 * A limit on the size of files (ulimit -f) is an error of the call here, never
 * SIGXFSZ: the signal goes to the thread that made the call, which holds it back and
 * takes it away again.
 *
 * A file that is truncated while it is mapped ends whoever touches it with SIGBUS, be it
 * a training thread. The kernel offers no file with a name that can't be truncated by its
 * owner (seals are for memfds, which have no name that outlives a crash), and copying
 * through write() would lose what a crash is explained with. So SIGBUS is answered: a
 * fault within the mapping has it replaced by memory of this process, and the
 * instruction runs again; nobody reads what is written from then on. Any other fault and
 * a SIGBUS that was sent get what the program had set before: the handler puts that back
 * and lets the instruction fault again, or sends the signal again. A program that ignores
 * SIGBUS, or sets a handler of its own later, keeps that.
 */
#include "guard.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- SIGXFSZ ---- */

void falcon_quiet_begin(falcon_quiet *q) {
  sigset_t pending;
  sigemptyset(&q->size);
  sigaddset(&q->size, SIGXFSZ);
  sigemptyset(&pending);
  sigpending(&pending);
  q->theirs = sigismember(&pending, SIGXFSZ) == 1; /* it came before, and stays */
  q->on = !pthread_sigmask(SIG_BLOCK, &q->size, &q->before);
}

void falcon_quiet_end(falcon_quiet *q) {
  int saved = errno;
  static const struct timespec at_once;
  if (!q->on) return;
  if (!q->theirs)
    while (sigtimedwait(&q->size, NULL, &at_once) < 0 && errno == EINTR) {}
  pthread_sigmask(SIG_SETMASK, &q->before, NULL);
  errno = saved;
}

/* ---- SIGBUS ---- */

enum { WHOLE = 0, LOST = 1 };

static struct {
  char *base;
  size_t bytes;
  falcon_header header; /* what an end in order still has to record */
  struct sigaction theirs;
  _Atomic int state;
} mapping;

static bool is_ours(const siginfo_t *info) {
  return info->si_code == BUS_ADRERR && (uintptr_t)info->si_addr - (uintptr_t)mapping.base < mapping.bytes;
}

/* Once: a second thread that has faulted on the file finds memory there. Other threads
 * read and write meanwhile, as they did while the agent wrote. The call is made past libc,
 * where a sanitizer would take the new memory for a write to all of it. */
__attribute__((no_sanitize("thread"))) static bool replace(void) {
  if (atomic_exchange(&mapping.state, LOST) == LOST) return true;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (syscall(SYS_mmap, mapping.base, mapping.bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == -1) return false;
  const volatile char *from = (const volatile char *)&mapping.header;
  for (size_t i = 0; i < sizeof mapping.header; i++) ((volatile char *)mapping.base)[i] = from[i];
  return true;
}

static void faulted(int sig, siginfo_t *info, void *context) {
  int saved = errno;
  (void)context;
  if (!is_ours(info) || !replace()) {
    sigaction(sig, &mapping.theirs, NULL);
    if (info->si_code <= 0) raise(sig); /* sent; a fault comes again by itself */
  }
  errno = saved;
}

void falcon_guard_mapping(char *base, size_t bytes) {
  struct sigaction mine = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  mapping.base = base;
  mapping.bytes = bytes;
  memcpy(&mapping.header, base, sizeof mapping.header);
  sigemptyset(&mine.sa_mask);
  if (sigaction(SIGBUS, NULL, &mapping.theirs)) return;
  if (!(mapping.theirs.sa_flags & SA_SIGINFO) && mapping.theirs.sa_handler == SIG_IGN) return;
  sigaction(SIGBUS, &mine, NULL);
}
