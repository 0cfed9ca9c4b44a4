/* Cases of programs that are not linked to NCCL: a framework loaded RTLD_LOCAL,
 * and dlopen with dlsym. */
#include <dlfcn.h>

#include "nccl.h"

static void *open_lib(const char *name, int flags) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", getenv("TEST_DIR"), name);
  void *h = dlopen(path, flags);
  if (!h) fprintf(stderr, "%s\n", dlerror());
  CHECK(h);
  return h;
}

/* RTLD_NEXT finds nothing here; the loaded library is found by its soname. */
static void case_local(void) {
  void *h = open_lib("libfw.so", RTLD_NOW | RTLD_LOCAL);
  int (*train)(int) = (int (*)(int))dlsym(h, "fw_train");
  CHECK(train && train(5) == 0);
  char *b = shm_map();
  CHECK(b && LOAD(RING(b, 0)->head) == 5 && COMM(b, 0)->gate == 5 && COMM(b, 0)->size == 4);
  CHECK(CTL(b)->coverage == (FALCON_COV_INIT | FALCON_COV_COLL));
}

static void case_dlsym(void) {
  void *h = open_lib("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *c = NULL;
  int (*init)(void **, int, nccl_unique_id, int) = (int (*)(void **, int, nccl_unique_id, int))dlsym(h, "ncclCommInitRank");
  int (*gather)(const void *, void *, size_t, int, void *, void *) =
    (int (*)(const void *, void *, size_t, int, void *, void *))dlsym(h, "ncclAllGather");
  CHECK(init && gather && init(&c, 2, test_id(1), 0) == 0 && gather(NULL, NULL, 3, 7, c, NULL) == 0);
  char *b = shm_map();
  CHECK(b && LOAD(RING(b, 0)->head) == 1 && REC(b, 0, 0)->op == FALCON_OP_ALLGATHER && REC(b, 0, 0)->count == 3);
}

/* What the library lacks stays missing, and other names are none of our business. */
static void case_dlsym_rest(void) {
  void *h = open_lib("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  CHECK(!dlsym(h, "ncclCommRevoke") && dlerror());
  CHECK(dlsym(h, "ncclCommCount") && dlsym(RTLD_DEFAULT, "printf") == (void *)printf);
  CHECK(dlsym(RTLD_NEXT, "puts") == (void *)puts && !dlsym(RTLD_DEFAULT, "no_such_symbol"));
  CHECK(dlsym(RTLD_DEFAULT, "falcon_job_poll"));
}

/* A second NCCL in the process is not mixed up with the first: its users get
 * the real function, and coverage says so. */
static void case_two_libraries(void) {
  void *h = open_lib("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *g = open_lib("libnccl-other.so.2", RTLD_NOW | RTLD_LOCAL), *c = NULL;
  int (*init)(void **, int, nccl_unique_id, int) = (int (*)(void **, int, nccl_unique_id, int))dlsym(h, "ncclCommInitRank");
  void *theirs = dlsym(g, "ncclCommInitRank");
  CHECK(init && theirs && (void *)init != theirs);
  Dl_info info;
  CHECK(dladdr(theirs, &info) && strstr(info.dli_fname, "other"));
  CHECK(init(&c, 2, test_id(1), 0) == 0);
  CHECK(CTL(shm_map())->coverage & FALCON_COV_UNHOOKED);
}

/* NCCL that is only called past the hook shows as unhooked once the job speaks. */
static void case_unhooked(void) {
  void *h = open_lib("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *c = NULL;
  void (*describe)(int, int, int, int) = (void (*)(int, int, int, int))dlsym(RTLD_DEFAULT, "falcon_job_describe");
  CHECK(describe);
  describe(1, 1, 1, 1);
  char *b = shm_map();
  for (int i = 0; i < 1000 && !(LOAD(CTL(b)->coverage) & FALCON_COV_UNHOOKED); i++) usleep(10000);
  CHECK(LOAD(CTL(b)->coverage) == (FALCON_COV_UNHOOKED | FALCON_COV_ADAPTER));
  int (*init)(void **, int, nccl_unique_id, int) = (int (*)(void **, int, nccl_unique_id, int))dlsym(h, "ncclCommInitRank");
  CHECK(init && init(&c, 2, test_id(1), 0) == 0); /* it was only late */
  CHECK(LOAD(CTL(b)->coverage) == (FALCON_COV_INIT | FALCON_COV_ADAPTER));
}

/* A program without NCCL never notices the hook. */
static void case_stranger(void) {
  CHECK(dlsym(RTLD_DEFAULT, "puts") && !shm_map());
}

static const struct { const char *name; void (*run)(void); } cases[] = {
#define C(n) {#n, case_##n}
  C(local), C(dlsym), C(dlsym_rest), C(two_libraries), C(unhooked), C(stranger),
};

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (argc < 2) puts(cases[i].name);
    else if (!strcmp(argv[1], cases[i].name)) { cases[i].run(); return 0; }
  }
  return argc < 2 ? 0 : 2;
}
