/*
 * Finding the real functions. In this order, and never by loading anything:
 * RTLD_NEXT; a libnccl.so.2 that is already loaded (the way frameworks load it,
 * RTLD_LOCAL, RTLD_NEXT finds nothing); the libnccl that /proc/self/maps names.
 * Opening any other path would bring a second NCCL into the process.
 */
#include "hook.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic(void *) falcon_real[FN_COUNT];

static const char *const names[FN_COUNT] = {
#define X(name, ...) [FN_##name] = #name,
  FALCON_CALLS(X) FALCON_OTHERS(X) FALCON_QUERIES(X)
#undef X
};

bool falcon_is_mine(void *p) {
  Dl_info theirs, mine;
  return dladdr(p, &theirs) && dladdr((void *)falcon_resolve, &mine) && theirs.dli_fbase == mine.dli_fbase;
}

int falcon_fn_index(const char *name) {
  for (int i = 0; i < FN_HOOKED; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

/* Path of a mapped file whose base name starts with prefix. */
static bool mapped_path(const char *prefix, char *out, size_t size) {
  FILE *f = fopen("/proc/self/maps", "re");
  if (!f) return false;
  char line[1200];
  bool found = false;
  while (!found && fgets(line, sizeof line, f)) {
    char *path = strchr(line, '/');
    if (!path) continue;
    path[strcspn(path, "\n")] = 0;
    const char *base = strrchr(path, '/') + 1;
    if (strncmp(base, prefix, strlen(prefix)) || strlen(path) >= size) continue;
    memcpy(out, path, strlen(path) + 1);
    found = true;
  }
  fclose(f);
  return found;
}

bool falcon_nccl_mapped(void) {
  char path[1100];
  return mapped_path("libnccl.so", path, sizeof path);
}

/* Symbol of a library that is loaded already. The handle is kept: it pins the
 * library as long as the pointers are in use. */
static void *loaded_symbol(const char *soname, const char *prefix, const char *name) {
  void *handle = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  char path[1100];
  if (!handle && mapped_path(prefix, path, sizeof path)) handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  return handle ? falcon_symbol(handle, name) : NULL;
}

void *falcon_resolve(int fn) {
  void *p = falcon_symbol(RTLD_NEXT, names[fn]);
  if (!p) p = loaded_symbol("libnccl.so.2", "libnccl.so", names[fn]);
  if (!p || falcon_is_mine(p)) return NULL;
  void *none = NULL;
  atomic_compare_exchange_strong(&falcon_real[fn], &none, p);
  return none ? none : p;
}

void *falcon_cublas(const char *name) {
  static const char *const sonames[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
  void *p = NULL;
  for (size_t i = 0; !p && i < sizeof sonames / sizeof *sonames; i++) p = loaded_symbol(sonames[i], "libcublas.so", name);
  return p;
}

void *falcon_cuda(const char *name) {
  void *p = falcon_symbol(RTLD_DEFAULT, name);
  if (p) return p;
  static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};
  for (size_t i = 0; !p && i < sizeof sonames / sizeof *sonames; i++) p = loaded_symbol(sonames[i], "libcudart.so", name);
  return p;
}
