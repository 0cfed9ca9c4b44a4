/* Cases of communicators whose handle comes later, and of traffic that no record
 * shows; a part of t_linked.c. */
#include <sys/mman.h>

void fake_nccl_ready(void);

static uint64_t child_id(uint64_t parent, uint32_t ordinal, int32_t color) {
  struct { uint64_t parent; uint32_t ordinal; int32_t color; } key = {parent, ordinal, color};
  return fnv(&key, sizeof key);
}

static char *b_;

static void *late_split(void *parent, int color, void **where) {
  nccl_config cfg = {.size = sizeof cfg, .magic = NCCL_CONFIG_MAGIC, .commName = "LATE"};
  CHECK(ncclCommSplit(parent, color, 0, where, &cfg) == NCCL_IN_PROGRESS && !*where);
  b_ = shm_map();
  CHECK(COMM(b_, 1)->state == FALCON_COMM_FREE);
  return parent;
}

static void is_child(void *handle, uint32_t ordinal, int32_t color) {
  CHECK(handle && COMM(b_, 1)->state == FALCON_COMM_LIVE && COMM(b_, 1)->handle == (uint64_t)(uintptr_t)handle);
  CHECK(COMM(b_, 1)->id == child_id(COMM(b_, 0)->id, ordinal, color) && COMM(b_, 1)->parent == COMM(b_, 0)->id);
  CHECK(!strcmp(COMM(b_, 1)->name, "LATE") && COMM(b_, 1)->size == 4 && !(LOAD(CTL(b_)->coverage) & FALCON_COV_UNHOOKED));
}

/* The parent says when it is ready; the child is known from its first use on. */
static void case_late_split(void) {
  setenv("FAKE_LATE", "1", 1);
  void *p = comm_of(1, 8, 2), *c = p;
  int state = 0;
  late_split(p, 1, &c);
  CHECK(ncclCommGetAsyncError(p, &state) == 0 && state == NCCL_IN_PROGRESS && !c && COMM(b_, 1)->state == FALCON_COMM_FREE);
  CHECK(ncclCommGetAsyncError(p, &state) == 0 && state == NCCL_SUCCESS);
  CHECK(c && ncclCommGetAsyncError(c, &state) == 0);
  is_child(c, 0, 1);
  CHECK(ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0 && COMM(b_, 1)->gate == 1);
}

/* The program only looks whether its handle is there. */
static void case_late_unasked(void) {
  setenv("FAKE_LATE", "1", 1);
  void *p = comm_of(1, 8, 2), *c = p;
  late_split(p, 3, &c);
  fake_nccl_ready();
  CHECK(ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0 && COMM(b_, 1)->gate == 1);
  is_child(c, 0, 3);
}

/* The place of the handle holds something else by the time that the parent is asked. */
static void case_late_reused(void) {
  setenv("FAKE_LATE", "1", 1);
  void *p = comm_of(1, 8, 2), *place = p;
  int state = 0;
  late_split(p, 1, &place);
  fake_nccl_ready();
  void *c = place;
  place = (void *)0xdead0;
  for (int i = 0; i < 2; i++) CHECK(ncclCommGetAsyncError(p, &state) == 0 && state == NCCL_SUCCESS);
  CHECK(COMM(b_, 1)->state == FALCON_COMM_FREE && ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0);
  CHECK(COMM(b_, 1)->handle == (uint64_t)(uintptr_t)c && COMM(b_, 1)->id == 0);
}

/* In a group it is the group's end that goes on in the background. */
static void case_late_group(void) {
  void *p = comm_of(1, 8, 2), *c = p;
  int state = 0;
  setenv("FAKE_LATE", "1", 1);
  CHECK(ncclGroupStart() == 0);
  late_split(p, 1, &c);
  setenv("FAKE_GROUP_LATE", "1", 1);
  CHECK(ncclGroupEnd() == NCCL_IN_PROGRESS && !c && COMM(b_, 1)->state == FALCON_COMM_FREE);
  for (int i = 0; i < 2; i++) CHECK(ncclCommGetAsyncError(p, &state) == 0);
  CHECK(state == NCCL_SUCCESS && c && ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0);
  is_child(c, 0, 1);
}

/* Without a color there never is a handle; the next split has its own number. */
static void case_late_nocolor(void) {
  setenv("FAKE_LATE", "1", 1);
  void *p = comm_of(1, 8, 2), *c = p;
  int state = 0;
  late_split(p, -1, &c);
  for (int i = 0; i < 2; i++) CHECK(ncclCommGetAsyncError(p, &state) == 0);
  CHECK(state == NCCL_SUCCESS && !c && COMM(b_, 1)->state == FALCON_COMM_FREE);
  late_split(p, 1, &c);
  for (int i = 0; i < 2; i++) CHECK(ncclCommGetAsyncError(p, &state) == 0);
  CHECK(c && ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0);
  is_child(c, 1, 1);
}

/* The place of the handle is gone before its first call: nothing is read there. */
static void case_late_gone(void) {
  setenv("FAKE_LATE", "1", 1);
  void **where = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p = comm_of(1, 8, 2);
  CHECK(where != MAP_FAILED);
  late_split(p, 1, where);
  fake_nccl_ready();
  void *c = *where;
  CHECK(c && !munmap(where, 4096));
  CHECK(ncclAllReduce(NULL, NULL, 1, 0, 0, c, NULL) == 0 && COMM(b_, 1)->gate == 1 && COMM(b_, 1)->id == 0);
}

/* What passes without a call is marked, for this communicator alone. */
static void case_traffic(void) {
  void *c = comm_of(1, 8, 2), *d = comm_of(2, 8, 2), *e = comm_of(3, 8, 2), *w = NULL;
  char *b = shm_map();
  CHECK(ncclCommRegister(c, NULL, 8, &w) == 0 && ncclCommDeregister(c, w) == 0);
  CHECK(COMM(b, 0)->traffic == 0 && COMM(b, 1)->traffic == 0);
  CHECK(ncclDevCommCreate(c, NULL, NULL) == 0 && COMM(b, 0)->traffic == FALCON_TRAFFIC_DEVICE && COMM(b, 1)->traffic == 0);
  CHECK(ncclCommWindowRegister(d, NULL, 8, &w, 1) == 0 && COMM(b, 1)->traffic == FALCON_TRAFFIC_WINDOWS);
  CHECK(ncclSignal(1, 0, 0, 0, e, NULL) == 0 && COMM(b, 2)->traffic == FALCON_TRAFFIC_ONESIDED && !(COMM(b, 2)->seq & 1));
  CHECK(ncclCommWindowDeregister(d, w) == 0 && ncclDevCommDestroy(c, NULL) == 0);
  CHECK(ncclCommDestroy(c) == 0 && comm_of(4, 2, 0)); /* mostly at the same address: another communicator */
  CHECK(COMM(b, 3)->state == FALCON_COMM_LIVE && COMM(b, 3)->traffic == 0);
}
