/*
 * The lab's state file, mapped read-only. Linked into libcudart and
 * libnvidia-ml, hidden in both. Every getter is one relaxed load and is safe
 * from any thread; without a (good) file lab_state() is NULL and all is unpaced.
 */
#ifndef FALCON_LAB_STATE_H
#define FALCON_LAB_STATE_H

#include <stdint.h>

#include "../include/falcon_lab.h"

/* Base of the mapping, or NULL. Says once on stderr why a named file is unusable. */
const unsigned char *lab_state(void);
int lab_node(void);

const falcon_lab_header *lab_header(void);             /* NULL without a file */
const falcon_lab_gpu    *lab_gpu(int node, int gpu);   /* NULL without a file or out of range */
const falcon_lab_link   *lab_link(int a, int b);       /* NULL likewise, or when a == b */

double   lab_double(const double *field, double least, double fallback);
uint32_t lab_u32(const uint32_t *field);
uint64_t lab_u64(const uint64_t *field);

#endif
