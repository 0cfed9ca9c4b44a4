/*
 * Uses one NCCL in one of the ways in which programs are bound to it, without a
 * GPU: probe WAY. Prints on one line what NCCL answered, and on standard error
 * how the hook reports to be bound ("-" without a file of its own). With the hook
 * and without it the first line must be the same.
 *
 * needed: a library that is linked to NCCL, RTLD_LOCAL; dlsym: opened and asked;
 * deepbind: the library past the hook; two: a framework with an NCCL of its own
 * comes first, then the library.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test/shm.h"
#include "../nccl_abi.h"

typedef int (*version_fn)(int *);
typedef int (*id_fn)(nccl_unique_id *);
typedef int (*init_fn)(void **, int, nccl_unique_id, int);

typedef struct { version_fn version; id_fn id; init_fn init; } entries;

static void *open_lib(const char *name, int flags) {
  void *h = dlopen(name, RTLD_NOW | flags);
  if (!h) fprintf(stderr, "%s\n", dlerror());
  CHECK(h);
  return h;
}

static entries entries_of(void *h, const char *prefix) {
  char name[3][64];
  static const char *const ends[] = {"GetVersion", "GetUniqueId", "CommInitRank"};
  for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "%s%s", prefix, ends[i]);
  entries e = {(version_fn)dlsym(h, name[0]), (id_fn)dlsym(h, name[1]), (init_fn)dlsym(h, name[2])};
  CHECK(e.version && e.id && e.init);
  return e;
}

static void use(entries e) {
  int version = 0, rc;
  nccl_unique_id id;
  void *comm = NULL;
  memset(&id, 0, sizeof id);
  rc = e.version(&version);
  printf("version %d %d, ", rc, version);
  rc = e.id(&id);
  int set = 0;
  for (size_t i = 0; i < sizeof id.internal; i++) set |= id.internal[i];
  printf("id %d %s, ", rc, set ? "set" : "empty");
  rc = e.init(&comm, 1, id, 0);
  printf("init %d %s; ", rc, comm ? "handle" : "null");
}

int main(int argc, char **argv) {
  const char *way = argc > 1 ? argv[1] : "";
  if (!strcmp(way, "two")) use(entries_of(open_lib("libown.so", RTLD_LOCAL), "own"));
  if (!strcmp(way, "dlsym")) use(entries_of(open_lib("libnccl.so.2", RTLD_LOCAL), "nccl"));
  else use(entries_of(open_lib("libuser.so", strcmp(way, "deepbind") ? RTLD_LOCAL : RTLD_LOCAL | RTLD_DEEPBIND), "use"));
  puts("");
  char *b = shm_map();
  if (b) fprintf(stderr, "%u\n", LOAD(CTL(b)->bound));
  else fprintf(stderr, "-\n");
  fflush(NULL);
  return 0;
}
