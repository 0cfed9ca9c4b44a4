/* The little that the lab's tests share: checks, a state file, forked ranks. */
#ifndef FALCON_LAB_TEST_CHECK_H
#define FALCON_LAB_TEST_CHECK_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../include/falcon_lab.h"

#define CHECK(cond)                                                             \
  do {                                                                          \
    if (!(cond)) {                                                              \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);        \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

#define OK(call)                                                                          \
  do {                                                                                    \
    int rc_ = (int)(call);                                                                \
    if (rc_) {                                                                            \
      fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, rc_);         \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

/* A writable mapping of a fresh state file, named in $FALCON_LAB_STATE for
 * this process and its children; healthy everywhere, 1 GFLOP/s, 1 GB/s between
 * nodes, 10 GB/s inside. Lives until the process exits. */
unsigned char *state_create(int nodes, int gpus);
falcon_lab_header *state_header(unsigned char *state);
falcon_lab_gpu    *state_gpu(unsigned char *state, int node, int gpu);
falcon_lab_link   *state_link(unsigned char *state, int a, int b);
void state_set(double *field, double value);

/* Runs fn(rank, n, arg) in n forked processes and waits at most seconds for
 * them; a child that fails or is late fails the test, killed ones excepted. */
typedef void (*rank_fn)(int rank, int n, void *arg);
void run_ranks(const char *name, int n, rank_fn fn, void *arg, int seconds);

/* Runs fn() in one forked process, so that each test meets fresh libraries. */
void run_alone(const char *name, void (*fn)(void), int seconds);

/* A host function that holds a stream until the gate is opened: what a test
 * compares is enqueued meanwhile, so that no launch is later than its turn. */
void gate_wait(void *gate /* atomic_int */);
void gate_open(void *gate);

/* n bytes shared by this process and its children, zeroed. */
void *shared(size_t n);

#endif
