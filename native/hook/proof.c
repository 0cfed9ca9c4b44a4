/*
 * Proof of who made the file: an agent may see this process under another number, or
 * not at all, and another process under this one. A number is a name; the start, the
 * PID namespace and the boot say whose it is.
 */
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define STAT_BYTES 4096
#define START_FIELD 20 /* field 22, counted from the one behind the name */

/* Reads a small file of /proc as text; false where that is refused. */
static bool read_text(const char *path, char *out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, out, size - 1);
  close(fd);
  if (n <= 0) return false;
  out[n] = 0;
  return true;
}

/* A program's name may hold anything: fields are counted behind its last bracket. */
static uint64_t start_ticks(void) {
  char text[STAT_BYTES];
  if (!read_text("/proc/self/stat", text, sizeof text)) return 0;
  char *at = strrchr(text, ')');
  for (int i = 0; at && i < START_FIELD; i++) at = strchr(at + 1, ' ');
  return at ? strtoull(at + 1, NULL, 10) : 0;
}

static uint64_t namespace_inode(const char *path) {
  struct stat st;
  return stat(path, &st) ? 0 : (uint64_t)st.st_ino;
}

void falcon_proof_fill(falcon_header *h) {
  h->pid = (uint32_t)getpid();
  h->proc_start = start_ticks();
  h->pid_ns = namespace_inode("/proc/self/ns/pid");
  h->time_ns = namespace_inode("/proc/self/ns/time");
  if (!read_text("/proc/sys/kernel/random/boot_id", h->boot, sizeof h->boot)) h->boot[0] = 0;
  h->boot[strcspn(h->boot, "\n")] = 0;
}

/* Another library of ours in this process has made the file. */
static bool mapped_here(const char *path) {
  FILE *f = fopen("/proc/self/maps", "re");
  char line[PATH_MAX + 128];
  bool found = false;
  while (f && !found && fgets(line, sizeof line, f)) {
    char *at = strchr(line, '/');
    if (!at) continue;
    at[strcspn(at, "\n")] = 0;
    found = !strcmp(at, path);
  }
  if (f) fclose(f);
  return found;
}

/* The file is of a process of our number in our own namespace: it has ended, as we
 * have its number. Of any other file that can't be known. */
static bool left_behind(const char *path, const falcon_header *own) {
  falcon_header h;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool whole = read(fd, &h, sizeof h) == (ssize_t)sizeof h;
  close(fd);
  return whole && h.magic == FALCON_SHM_MAGIC && h.version >= 6 && own->pid_ns && h.pid_ns == own->pid_ns && h.pid == own->pid;
}

static int make_new(const char *path) { return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600); }

/* Replaces what a dead process has left; another process's file stays. */
static int make_or_replace(const char *path, const falcon_header *h) {
  int fd = make_new(path);
  if (fd >= 0 || errno != EEXIST || !left_behind(path, h) || unlink(path)) return fd;
  return make_new(path);
}

/* Where the plain name is taken, as by a container that shares the folder, the
 * namespace is part of the name. */
int falcon_proof_file(char *path, size_t size, const falcon_header *h) {
  char longer[PATH_MAX];
  if (mapped_here(path)) return -1;
  int fd = make_or_replace(path, h);
  if (fd >= 0 || errno != EEXIST) return fd;
  int n = snprintf(longer, sizeof longer, "%s-%llu", path, (unsigned long long)h->pid_ns);
  if (n < 0 || (size_t)n >= size || (size_t)n >= sizeof longer || mapped_here(longer)) return -1;
  if ((fd = make_or_replace(longer, h)) >= 0) memcpy(path, longer, (size_t)n + 1);
  return fd;
}

static pid_t told; /* this process has left a header alone at falcon_hook.path */

/* A limit below the header's size ends the program that writes beyond it. */
static bool may_write(size_t bytes) {
  struct rlimit most;
  return !getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur >= bytes;
}

void falcon_proof_refused(const char *path, const falcon_header *h, uint32_t call, int error) {
  falcon_header word = *h;
  word.refused = call;
  word.refused_errno = error;
  word.magic = FALCON_SHM_MAGIC;
  unlink(path);
  int fd = may_write(sizeof word) ? make_new(path) : -1;
  if (fd < 0) return;
  bool whole = write(fd, &word, sizeof word) == (ssize_t)sizeof word;
  if (close(fd) || !whole) unlink(path);
  else told = getpid();
}

/* A forked child leaves its parent's word alone. */
void falcon_proof_retire(void) {
  if (told && told == getpid()) unlink(falcon_hook.path);
  told = 0;
}
