/* What the benchmarks of the hook and of the profiler plug-in share. */
#ifndef FALCON_BENCH_H
#define FALCON_BENCH_H

#include <stdlib.h>
#include <time.h>

static inline double cpu_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static inline int up(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline double median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, up);
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* A 95 % interval of the median of sorted values, by their order alone: no shape of the noise is
 * assumed. n of 10 and more. */
static inline void interval95(const double *sorted, int n, double out[2]) {
  double half = 0.98;
  int below = 0;
  while ((below + 1) * (below + 1) <= n) below++; /* its root, without libm */
  int low = (int)(n / 2.0 - half * (below + 1));
  if (low < 0) low = 0;
  out[0] = sorted[low];
  out[1] = sorted[n - 1 - low];
}

#endif
