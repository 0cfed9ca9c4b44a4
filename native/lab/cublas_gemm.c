#include "cublas_gemm.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MR 16 /* rows of a tile: two vectors of 8 */
#define NR 6  /* columns: 12 accumulators fill the register file */

typedef float vec8 __attribute__((vector_size(32), aligned(4), may_alias));

/* acc (MR x NR, column-major) = panel of A (k x MR) times panel of B (k x NR). */
static inline __attribute__((always_inline)) void tile(int k, const float *a, const float *b, float *acc) {
  vec8 lo[NR] = {{0}}, hi[NR] = {{0}};
  for (int p = 0; p < k; p++, a += MR, b += NR) {
    vec8 a0 = *(const vec8 *)a, a1 = *(const vec8 *)(a + 8);
    for (int j = 0; j < NR; j++) {
      vec8 bj = {b[j], b[j], b[j], b[j], b[j], b[j], b[j], b[j]};
      lo[j] += a0 * bj;
      hi[j] += a1 * bj;
    }
  }
  for (int j = 0; j < NR; j++) {
    *(vec8 *)(acc + j * MR) = lo[j];
    *(vec8 *)(acc + j * MR + 8) = hi[j];
  }
}

static void tile_any(int k, const float *a, const float *b, float *acc) { tile(k, a, b, acc); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void tile_avx2(int k, const float *a, const float *b, float *acc) {
  tile(k, a, b, acc);
}
#endif

typedef void (*tile_fn)(int, const float *, const float *, float *);

static tile_fn pick(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return tile_avx2;
#endif
  return tile_any;
}

/* Packs rows [at, at+width) of op(X), which is rows x k with the given strides,
 * into k groups of width values, padded with zeros. */
static void pack(float *to, const float *x, ptrdiff_t row, ptrdiff_t col, int at, int rows, int k, int width) {
  int have = rows - at < width ? rows - at : width;
  for (int p = 0; p < k; p++, to += width) {
    const float *from = x + at * row + p * col;
    for (int i = 0; i < have; i++) to[i] = from[i * row];
    for (int i = have; i < width; i++) to[i] = 0;
  }
}

static void store(const gemm *g, const float *acc, int i0, int j0) {
  int mi = g->m - i0 < MR ? g->m - i0 : MR;
  int nj = g->n - j0 < NR ? g->n - j0 : NR;
  for (int j = 0; j < nj; j++) {
    float *c = g->c + (ptrdiff_t)(j0 + j) * g->ldc + i0;
    for (int i = 0; i < mi; i++) {
      float v = g->alpha * acc[j * MR + i];
      c[i] = g->beta == 0 ? v : v + g->beta * c[i]; /* beta 0 must not read C: it may hold NaN */
    }
  }
}

int gemm_run(const gemm *g) {
  if (g->m == 0 || g->n == 0) return 0;
  size_t panels = ((size_t)g->n + NR - 1) / NR;
  size_t k = (size_t)g->k;
  float *bp = malloc((panels * NR * k + MR * k + 1) * sizeof(float));
  if (!bp) return -1;
  float *ap = bp + panels * NR * k;
  ptrdiff_t a_row = g->trans_a ? g->lda : 1, a_col = g->trans_a ? 1 : g->lda;
  ptrdiff_t b_row = g->trans_b ? 1 : g->ldb, b_col = g->trans_b ? g->ldb : 1;
  for (size_t j = 0; j < panels; j++) pack(bp + j * NR * k, g->b, b_row, b_col, (int)j * NR, g->n, g->k, NR);
  tile_fn fn = pick();
  float acc[MR * NR];
  for (int i = 0; i < g->m; i += MR) {
    pack(ap, g->a, a_row, a_col, i, g->m, g->k, MR);
    for (size_t j = 0; j < panels; j++) {
      fn(g->k, ap, bp + j * NR * k, acc);
      store(g, acc, i, (int)j * NR);
    }
  }
  free(bp);
  return 0;
}
