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
  CHECK(LOAD(CTL(b)->coverage) == (FALCON_COV_UNHOOKED | FALCON_COV_ADAPTER | FALCON_COV_STAYS));
  int (*init)(void **, int, nccl_unique_id, int) = (int (*)(void **, int, nccl_unique_id, int))dlsym(h, "ncclCommInitRank");
  CHECK(init && init(&c, 2, test_id(1), 0) == 0); /* it was only late */
  CHECK(LOAD(CTL(b)->coverage) == (FALCON_COV_INIT | FALCON_COV_ADAPTER | FALCON_COV_STAYS));
}

/* NCCL within the framework's own library, as in source and conda builds of
 * PyTorch: there is no libnccl in the process. */
static void case_static(void) {
  void *h = open_lib("libfw-static.so", RTLD_NOW | RTLD_LOCAL);
  int (*train)(int) = (int (*)(int))dlsym(h, "fw_train");
  CHECK(train && train(5) == 0);
  char *b = shm_map();
  CHECK(b && LOAD(RING(b, 0)->head) == 5 && COMM(b, 0)->gate == 5 && COMM(b, 0)->size == 4);
  CHECK(LOAD(CTL(b)->bound) == FALCON_BOUND_STATIC && LOAD(CTL(b)->nccl_version) == 22700);
  CHECK(LOAD(CTL(b)->coverage) == (FALCON_COV_INIT | FALCON_COV_COLL));
}

/* Under another name than libnccl.so.2 the linker finds it all the same. */
static void case_renamed(void) {
  void *h = open_lib("libfw-other.so", RTLD_NOW | RTLD_LOCAL);
  int (*train)(int) = (int (*)(int))dlsym(h, "fw_train");
  CHECK(train && train(5) == 0);
  char *b = shm_map();
  CHECK(b && LOAD(RING(b, 0)->head) == 5 && LOAD(CTL(b)->bound) == FALCON_BOUND_NEEDED);
}

/* The pointer comes from a library, the call from a program that is linked to no NCCL. */
static void case_pointer(void) {
  void *h = open_lib("libfw-other.so", RTLD_NOW | RTLD_LOCAL), *c = NULL;
  int (*(*function)(void))(void **, int, nccl_unique_id, int) = (int (*(*)(void))(void **, int, nccl_unique_id, int))dlsym(h, "fw_init_function");
  CHECK(function && function()(&c, 4, test_id(3), 1) == 0 && c);
  CHECK(shm_map() && LOAD(COMM(shm_map(), 0)->size) == 4);
}

/* RTLD_DEEPBIND passes by the hook: the job works, and it is known. */
static char *past_the_hook(const char *framework) {
  void *h = open_lib(framework, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  int (*train)(int) = (int (*)(int))dlsym(h, "fw_train");
  void (*describe)(int, int, int, int) = (void (*)(int, int, int, int))dlsym(RTLD_DEFAULT, "falcon_job_describe");
  CHECK(train && train(5) == 0 && !shm_map());
  describe(1, 1, 1, 1);
  char *b = shm_map();
  for (int i = 0; i < 1000 && LOAD(CTL(b)->bound) != FALCON_BOUND_BYPASSED; i++) usleep(10000);
  CHECK(LOAD(CTL(b)->bound) == FALCON_BOUND_BYPASSED);
  return b;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REFUSES_DEEPBIND 1 /* the sanitizers do */
#else
#define REFUSES_DEEPBIND 0
#endif

static void case_deepbind(void) {
  if (REFUSES_DEEPBIND) return;
  char *b = past_the_hook("libfw.so");
  CHECK(LOAD(CTL(b)->coverage) & FALCON_COV_UNHOOKED);
}

/* The same where NCCL is no file of its own. */
static void case_deepbind_static(void) {
  if (!REFUSES_DEEPBIND) past_the_hook("libfw-static.so");
}

/* Two frameworks with an NCCL each: each one's calls reach its own, those of the
 * first are recorded, and that there is another is known. */
static void two_frameworks(const char *first, const char *second, uint32_t how) {
  void *h[2] = {open_lib(first, RTLD_NOW | RTLD_LOCAL), open_lib(second, RTLD_NOW | RTLD_LOCAL)};
  unsigned long (*count[2])(int);
  for (int i = 0; i < 2; i++) {
    int (*train)(int) = (int (*)(int))dlsym(h[i], "fw_train");
    count[i] = (unsigned long (*)(int))dlsym(h[i], "fake_nccl_count");
    CHECK(train && count[i] && train(3 + i) == 0);
  }
  CHECK(count[0] != count[1] && count[0](0) == 3 && count[1](0) == 4); /* all-reduces that reached it */
  CHECK(count[0](4) == 1 && count[1](4) == 1);                         /* communicators that it made */
  char *b = shm_map();
  CHECK(b && LOAD(RING(b, 0)->head) == 3 && COMM(b, 1)->state == FALCON_COMM_FREE);
  CHECK(LOAD(CTL(b)->bound) == how && LOAD(CTL(b)->coverage) & FALCON_COV_UNHOOKED);
}

static void case_two_static_first(void) { two_frameworks("libfw-static.so", "libfw.so", FALCON_BOUND_STATIC); }
static void case_two_needed_first(void) { two_frameworks("libfw.so", "libfw-static.so", FALCON_BOUND_NEEDED); }
static void case_two_renamed(void) { two_frameworks("libfw-other.so", "libfw.so", FALCON_BOUND_NEEDED); }

/* Functions asked of two libraries in turn are never mixed: a communicator that
 * one made does not reach the other. */
static void case_two_in_turn(void) {
  void *h = open_lib("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *g = open_lib("libnccl-other.so.2", RTLD_NOW | RTLD_LOCAL), *c = NULL, *d = NULL;
  int (*init)(void **, int, nccl_unique_id, int) = (int (*)(void **, int, nccl_unique_id, int))dlsym(h, "ncclCommInitRank");
  typedef int (*reduce_fn)(const void *, void *, size_t, int, int, void *, void *);
  reduce_fn theirs = (reduce_fn)dlsym(g, "ncclAllReduce"), reduce = (reduce_fn)dlsym(h, "ncclAllReduce");
  int (*make)(void **, int, nccl_unique_id, int) = (int (*)(void **, int, nccl_unique_id, int))dlsym(g, "ncclCommInitRank");
  unsigned long (*one)(int) = (unsigned long (*)(int))dlsym(h, "fake_nccl_count"), (*other)(int) = (unsigned long (*)(int))dlsym(g, "fake_nccl_count");
  CHECK(init(&c, 2, test_id(1), 0) == 0 && make(&d, 2, test_id(2), 0) == 0);
  CHECK(reduce(NULL, NULL, 1, 7, 0, c, NULL) == 0 && theirs(NULL, NULL, 1, 7, 0, d, NULL) == 0);
  CHECK(one(0) == 1 && other(0) == 1 && one(4) == 1 && other(4) == 1);
  CHECK(LOAD(RING(shm_map(), 0)->head) == 1 && LOAD(CTL(shm_map())->bound) == FALCON_BOUND_DLSYM);
}

/* A library that is only asked for functions does not take the place of the one that is used. */
static void case_asked_only(void) {
  void *g = open_lib("libnccl-other.so.2", RTLD_NOW | RTLD_LOCAL), *h = open_lib("libfw.so", RTLD_NOW | RTLD_LOCAL), *c = NULL;
  int (*make)(void **, int, nccl_unique_id, int) = (int (*)(void **, int, nccl_unique_id, int))dlsym(g, "ncclCommInitRank");
  int (*train)(int) = (int (*)(int))dlsym(h, "fw_train");
  unsigned long (*one)(int) = (unsigned long (*)(int))dlsym(h, "fake_nccl_count"), (*other)(int) = (unsigned long (*)(int))dlsym(g, "fake_nccl_count");
  CHECK(train(2) == 0 && one(4) == 1 && other(4) == 0 && LOAD(RING(shm_map(), 0)->head) == 2);
  CHECK(make(&c, 2, test_id(1), 0) == 0 && one(4) == 1 && other(4) == 1);
  CHECK(COMM(shm_map(), 1)->state == FALCON_COMM_FREE);
}

/* A success leaves no error behind, whatever was searched on the way. */
static void case_no_error(void) {
  void *h = open_lib("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  dlerror();
  CHECK(dlsym(h, "ncclAllReduce") && !dlerror());
  CHECK(dlsym(h, "ncclCommCount") && !dlerror());
}

/* A program without NCCL never notices the hook. */
static void case_stranger(void) {
  CHECK(dlsym(RTLD_DEFAULT, "puts") && !shm_map());
}

static const struct { const char *name; void (*run)(void); } cases[] = {
#define C(n) {#n, case_##n}
  C(local), C(dlsym), C(dlsym_rest), C(two_libraries), C(unhooked), C(stranger),
  C(static), C(renamed), C(pointer), C(deepbind), C(deepbind_static), C(two_static_first), C(two_needed_first), C(two_renamed), C(two_in_turn), C(asked_only), C(no_error),
};

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (argc < 2) puts(cases[i].name);
    else if (!strcmp(argv[1], cases[i].name)) { cases[i].run(); return 0; }
  }
  return argc < 2 ? 0 : 2;
}
