/*
 * Looking up symbols of libraries that are in the process already. Nothing is
 * ever loaded: opening another path would bring a second NCCL into the process.
 */
#include "hook.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool falcon_is_mine(void *p) {
  Dl_info theirs, mine;
  return dladdr(p, &theirs) && dladdr((void *)falcon_is_mine, &mine) && theirs.dli_fbase == mine.dli_fbase;
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

/* A library that is loaded already, by soname or by what /proc/self/maps names.
 * The handle is kept: it pins the library as long as its pointers are in use. */
static void *loaded_library(const char *soname, const char *prefix) {
  void *handle = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  char path[1100];
  if (!handle && mapped_path(prefix, path, sizeof path)) handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  return handle;
}

static void *loaded_symbol(const char *soname, const char *prefix, const char *name) {
  void *handle = loaded_library(soname, prefix);
  return handle ? falcon_symbol(handle, name) : NULL;
}

typedef struct { char **names; size_t count, room; } name_list;

static int collect_name(struct dl_phdr_info *info, size_t size, void *arg) {
  name_list *l = arg;
  (void)size;
  if (!info->dlpi_name || !*info->dlpi_name) return 0; /* the program: the global scope covers it */
  if (l->count == l->room) {
    size_t room = l->room ? 2 * l->room : 256;
    char **grown = realloc(l->names, room * sizeof *grown);
    if (!grown) return 1;
    l->names = grown;
    l->room = room;
  }
  if ((l->names[l->count] = strdup(info->dlpi_name))) l->count++;
  return 0;
}

/* The names are taken first: the lookups lock what the walk holds. */
static void *search_objects(const char *name) {
  name_list l = {0};
  void *found = NULL;
  dl_iterate_phdr(collect_name, &l);
  for (size_t i = 0; i < l.count; i++) {
    void *handle = found ? NULL : dlopen(l.names[i], RTLD_LAZY | RTLD_NOLOAD);
    void *p = handle ? falcon_symbol(handle, name) : NULL;
    if (p && !falcon_is_mine(p)) found = handle;
    else if (handle) dlclose(handle);
    free(l.names[i]);
  }
  free(l.names);
  return found;
}

void *falcon_nccl_handle(const char *name) {
  void *handle = loaded_library("libnccl.so.2", "libnccl.so");
  if (handle && falcon_symbol(handle, name)) return handle;
  return search_objects(name);
}

/* The name of a function that is not interposed: it finds the program's own too. */
bool falcon_nccl_loaded(void) {
  void *found = falcon_symbol(RTLD_DEFAULT, "ncclGetVersion");
  if (!found) found = falcon_nccl_handle("ncclGetVersion");
  dlerror();
  return found != NULL;
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
