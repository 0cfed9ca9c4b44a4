/*
 * The folder of this user's files: the one that FALCON_SHM_DIR names where nobody else
 * may write there, else falcon-<uid> in it, which only its user may write. The agent and
 * falcon_torch look in the same places. Where somebody has taken that name, files lie in the
 * shared folder itself: the process is seen all the same, and the agent tells of it.
 */
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_own(const struct stat *st) {
  return S_ISDIR(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* This user's number outside of its user namespace: that is whose the files are on the host. */
static unsigned outer_user(void) {
  FILE *f = fopen("/proc/self/uid_map", "re");
  unsigned me = geteuid(), inside, outside, count, found = me;
  while (f && fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
    if (me >= inside && me - inside < count) found = outside + (me - inside);
  if (f) fclose(f);
  return found;
}

static bool take_folder(const char *path) {
  struct stat st;
  if (mkdir(path, 0700) && errno != EEXIST) return false;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  bool ok = fd >= 0 && !fstat(fd, &st) && is_own(&st);
  if (fd >= 0) close(fd);
  return ok;
}

bool falcon_folder(char *out) {
  const char *dir = getenv("FALCON_SHM_DIR");
  char own[PATH_MAX];
  struct stat st;
  /* the program may change its directory before the end */
  if (!realpath(dir && *dir ? dir : "/dev/shm", out) || stat(out, &st)) return false;
  if (is_own(&st)) return true;
  int n = snprintf(own, sizeof own, "%s/falcon-%u", out, outer_user());
  if (n > 0 && (size_t)n < sizeof own && take_folder(own)) strcpy(out, own);
  return true;
}
