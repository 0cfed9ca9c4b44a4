/* What the tests ask of the fake NCCL beyond NCCL. */
#ifndef FALCON_TEST_FAKE_H
#define FALCON_TEST_FAKE_H

#include <stdint.h>

extern __thread int fake_captured; /* calls of this thread are part of a graph */
void fake_device(int back, uint64_t from, uint64_t to); /* 0 = the newest call of this thread has run on the device */
void fake_give_up(void);
int ncclAlltoAll(const void *s, void *r, size_t n, int t, void *c, void *st);

#endif
