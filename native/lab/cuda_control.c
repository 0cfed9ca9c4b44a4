/*
 * The way of operators that compute control data: their library lies beside this one where it is made for the
 * framework that runs (operators/operators.cc), and is loaded when devices are first counted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_internal.h"
#include "include/falcon_lab_launch.h"

#define OPERATORS "falcon_lab_operators"

static __thread unsigned long launched;
static __thread cudaStream_t last;

void control_note_launch(cudaStream_t stream) {
  launched++;
  last = stream;
}

LAB_API unsigned long falcon_lab_launched(cudaStream_t *stream) {
  if (stream) *stream = last;
  return launched;
}

typedef struct later {
  void (*fn)(void *), (*release)(void *);
  void *arg;
} later;

static int run_later(void *arg, falcon_lab_run *run) {
  later *l = arg;
  (void)run;
  l->fn(l->arg);
  return 0;
}

static void release_later(void *arg) {
  later *l = arg;
  l->release(l->arg);
  free(l);
}

LAB_API cudaError_t falcon_lab_after(cudaStream_t stream, void (*fn)(void *), void (*release)(void *), void *arg) {
  later *l = malloc(sizeof *l);
  if (!l) {
    release(arg);
    return cuda_fail(cudaErrorMemoryAllocation);
  }
  *l = (later){fn, release, arg};
  falcon_lab_op op = {.fn = run_later, .arg = l, .release = release_later};
  return falcon_lab_enqueue(stream, &op);
}

/* The library's path, in the folder of this one; 0 where there is none. */
static int find_operators(char *path, size_t size) {
  Dl_info me;
  if (!dladdr((void *)falcon_lab_launched, &me) || !me.dli_fname) return 0;
  const char *slash = strrchr(me.dli_fname, '/');
  int folder = slash ? (int)(slash - me.dli_fname) : 0;
  int n = slash ? snprintf(path, size, "%.*s/lib" OPERATORS ".so", folder, me.dli_fname) : -1;
  return n > 0 && (size_t)n < size && access(path, R_OK) == 0;
}

static void load_operators(void) {
  char path[PATH_MAX];
  if (!find_operators(path, sizeof path)) return;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void (*start)(void) = NULL;
  if (library) *(void **)&start = dlsym(library, OPERATORS);
  if (start) start();
  else fprintf(stderr, "falcon lab: control data is not computed: %s\n", dlerror());
}

/* Who asks for devices before PyTorch is there is asked again. */
void control_load(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static atomic_int loaded;
  if (atomic_load(&loaded)) return;
  void *torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (!torch) return;
  dlclose(torch);
  pthread_once(&once, load_operators);
  atomic_store(&loaded, 1);
}
