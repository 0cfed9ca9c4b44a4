/* Where the file lies: see folder.c. */
#include "nccl.h"
#include "shm.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>

static char shared[512], own[600];

/* A folder as /dev/shm is, within the test's own. */
static void make_shared(void) {
  snprintf(shared, sizeof shared, "%s/shared", getenv("FALCON_SHM_DIR"));
  CHECK(!mkdir(shared, 0700) && !chmod(shared, 01777));
  snprintf(own, sizeof own, "%s/falcon-%u", shared, geteuid());
  setenv("FALCON_SHM_DIR", shared, 1);
}

static void begin(void) {
  void *comm = NULL;
  CHECK(!ncclCommInitRank(&comm, 4, test_id(1), 1));
}

static bool file_in(const char *folder) {
  char path[1024];
  snprintf(path, sizeof path, "%s/falcon.t.%d", folder, (int)getpid());
  return !access(path, F_OK);
}

/* Removes what lies in a folder, then the folder; anything else is removed itself. No
 * program is started for it: one would have the hook and the sanitizer preloaded. */
static void remove_all(const char *path) {
  struct stat st;
  if (lstat(path, &st)) return;
  if (!S_ISDIR(st.st_mode)) {
    CHECK(!unlink(path));
    return;
  }
  DIR *d = opendir(path);
  CHECK(d);
  for (struct dirent *e; (e = readdir(d));) {
    char below[2048];
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    snprintf(below, sizeof below, "%s/%s", path, e->d_name);
    remove_all(below);
  }
  closedir(d);
  CHECK(!rmdir(path));
}

static void clean_up(void) { remove_all(shared); }

static void case_private(void) {
  begin();
  CHECK(file_in(getenv("FALCON_SHM_DIR")));
}

static void case_shared(void) {
  struct stat st;
  make_shared();
  begin();
  CHECK(file_in(own) && !file_in(shared));
  CHECK(!stat(own, &st) && (st.st_mode & 07777) == 0700);
  clean_up();
}

static void case_again(void) {
  make_shared();
  CHECK(!mkdir(own, 0700));
  begin();
  CHECK(file_in(own));
  clean_up();
}

/* What stands in the folder's place costs the folder, not the file. */
static void squatted(void) {
  begin();
  CHECK(!file_in(own) && file_in(shared));
  clean_up();
}

static void case_open(void) {
  make_shared();
  CHECK(!mkdir(own, 0700) && !chmod(own, 0777));
  squatted();
}

static void case_link(void) {
  make_shared();
  CHECK(!symlink("/tmp", own));
  squatted();
}

static void case_pipe(void) {
  make_shared();
  CHECK(!mkfifo(own, 0600));
  squatted();
}

static void case_stranger(void) {
  make_shared();
  CHECK(!mkdir(own, 0700));
  if (!chown(own, 61234, 61234)) squatted();
  else CHECK(errno == EPERM);
  clean_up();
}

int main(int argc, char **argv) {
  static const test_case cases[] = {CASE(private), CASE(shared), CASE(again), CASE(open), CASE(link), CASE(pipe), CASE(stranger)};
  return run_case(cases, sizeof cases / sizeof *cases, argc, argv);
}
