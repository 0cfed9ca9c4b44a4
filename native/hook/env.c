/*
 * Keeping the hook out of the children of a training process. Done when the
 * process proves to be one, by opening its first communicator: launchers, which
 * never do, pass LD_PRELOAD on. The value is shortened in place, since setenv
 * beside a getenv of another thread is not safe.
 */
#include "hook.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool same_file(const char *a, const char *b) {
  struct stat x, y;
  return !strcmp(a, b) || (!stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

static bool is_self(const char *entry, size_t n) {
  char path[1024];
  if (!n || n >= sizeof path || !falcon_hook.self[0]) return false;
  memcpy(path, entry, n);
  path[n] = 0;
  return same_file(path, falcon_hook.self);
}

void falcon_strip_preload(void) {
  char *in = getenv("LD_PRELOAD"), *out = in;
  while (in && *in) {
    size_t n = strcspn(in, ": ");
    size_t all = n + (in[n] != 0);
    if (!is_self(in, n)) {
      memmove(out, in, all);
      out += all;
    }
    in += all;
  }
  if (out) *out = 0;
}
