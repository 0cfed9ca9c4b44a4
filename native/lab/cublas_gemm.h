/* The matrix product behind libcublas's stand-in. */
#ifndef FALCON_LAB_CUBLAS_GEMM_H
#define FALCON_LAB_CUBLAS_GEMM_H

typedef struct gemm {
  int trans_a, trans_b;
  int m, n, k;
  float alpha, beta;
  const float *a, *b;
  float *c;
  int lda, ldb, ldc;
} gemm;

/* C = alpha op(A) op(B) + beta C, column-major. Each element is summed over k
 * in ascending order without fused multiply-add, so that the result is the
 * same on every machine, whatever its vector width. -1 when out of memory. */
int gemm_run(const gemm *g);

#endif
