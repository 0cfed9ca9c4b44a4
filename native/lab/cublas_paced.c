/*
 * Products that frameworks ask for in every precision: they take the time of
 * their operations and compute nothing. (cublasSgemm and its batched form, in
 * cublas_api.c, compute: the lab's own trainer and the hook's test use them.)
 */
#include <stdint.h>

#include "include/cublas_v2.h"
#include "lab_stream.h"

#define LAB_API __attribute__((visibility("default")))

static int run_nothing(void *arg, falcon_lab_run *run) {
  (void)arg;
  (void)run;
  return 0;
}

cublasStatus_t product_paced(cudaStream_t stream, double m, double n, double k, double batch) {
  if (m < 0 || n < 0 || k < 0 || batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  falcon_lab_host_launch();
  falcon_lab_op op = {.fn = run_nothing, .flops = 2 * m * n * k * batch};
  return falcon_lab_enqueue(stream, &op) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t product(cublasHandle_t h, int m, int n, int k, int batch) {
  cudaStream_t stream = NULL;
  cublasStatus_t rc = cublasGetStream_v2(h, &stream);
  return rc ? rc : product_paced(stream, m, n, k, batch);
}

#define PRODUCTS(letter)                                                                                            \
  LAB_API cublasStatus_t cublas##letter##gemmBatched(cublasHandle_t h, int ta, int tb, int m, int n, int k,         \
                                                     const void *alpha, const void *const a[], int lda,             \
                                                     const void *const b[], int ldb, const void *beta,              \
                                                     void *const c[], int ldc, int batch) {                         \
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;        \
    return product(h, m, n, k, batch);                                                                              \
  }                                                                                                                 \
  LAB_API cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t h, int t, int m, int n, const void *alpha,          \
                                                 const void *a, int lda, const void *x, int incx, const void *beta, \
                                                 void *y, int incy) {                                               \
    (void)t, (void)alpha, (void)a, (void)lda, (void)x, (void)incx, (void)beta, (void)y, (void)incy;                 \
    return product(h, m, n, 1, 1);                                                                                  \
  }

PRODUCTS(S)
PRODUCTS(D)
PRODUCTS(C)
PRODUCTS(Z)

#define WIDE_PRODUCTS(letter)                                                                                      \
  LAB_API cublasStatus_t cublas##letter##gemm_v2(cublasHandle_t h, int ta, int tb, int m, int n, int k,            \
                                                 const void *alpha, const void *a, int lda, const void *b,         \
                                                 int ldb, const void *beta, void *c, int ldc) {                    \
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;       \
    return product(h, m, n, k, 1);                                                                                 \
  }                                                                                                                \
  LAB_API cublasStatus_t cublas##letter##gemmStridedBatched(                                                       \
      cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int lda,            \
      long long sa, const void *b, int ldb, long long sb, const void *beta, void *c, int ldc, long long sc,        \
      int batch) {                                                                                                 \
    (void)ta, (void)tb, (void)alpha, (void)a, (void)lda, (void)sa, (void)b, (void)ldb, (void)sb, (void)beta,       \
        (void)c, (void)ldc, (void)sc;                                                                              \
    return product(h, m, n, k, batch);                                                                             \
  }

WIDE_PRODUCTS(D)
WIDE_PRODUCTS(C)
WIDE_PRODUCTS(Z)

LAB_API cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, int ta, int tb, int m, int n, int k,
                                                  const void *alpha, const void *a, int at, int lda, long long sa,
                                                  const void *b, int bt, int ldb, long long sb, const void *beta,
                                                  void *c, int ct, int ldc, long long sc, int batch, int compute,
                                                  int algo) {
  (void)ta, (void)tb, (void)alpha, (void)a, (void)at, (void)lda, (void)sa, (void)b, (void)bt, (void)ldb, (void)sb,
      (void)beta, (void)c, (void)ct, (void)ldc, (void)sc, (void)compute, (void)algo;
  return product(h, m, n, k, batch);
}

LAB_API cublasStatus_t cublasSgemmEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const float *alpha,
                                     const void *a, int at, int lda, const void *b, int bt, int ldb,
                                     const float *beta, void *c, int ct, int ldc) {
  (void)ta, (void)tb, (void)alpha, (void)a, (void)at, (void)lda, (void)b, (void)bt, (void)ldb, (void)beta, (void)c,
      (void)ct, (void)ldc;
  return product(h, m, n, k, 1);
}

/* ---- settings without an effect here ---- */

LAB_API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *p, size_t bytes) {
  (void)h, (void)p, (void)bytes;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t h, int mode) {
  (void)h, (void)mode;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t h, int *mode) {
  (void)h;
  *mode = 0; /* on the host */
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasSetSmCountTarget(cublasHandle_t h, int n) {
  (void)h, (void)n;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasSetAtomicsMode(cublasHandle_t h, int mode) {
  (void)h, (void)mode;
  return CUBLAS_STATUS_SUCCESS;
}
