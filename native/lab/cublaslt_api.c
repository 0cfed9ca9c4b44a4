/* libcublasLt stand-in: products by descriptors, which take their time and compute nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "include/cublas_v2.h"
#include "lab_stream.h"

#define LAB_API __attribute__((visibility("default")))
#define LT_VERSION 130000

cublasStatus_t product_paced(cudaStream_t stream, double m, double n, double k, double batch);

enum { LAYOUT_ROWS = 1, LAYOUT_COLS = 2, LAYOUT_BATCH = 5 }; /* cublasLtMatrixLayoutAttribute_t */
enum { DESC_TRANSA = 3 };                                    /* cublasLtMatmulDescAttributes_t */

typedef struct layout {
  uint64_t rows, cols;
  int32_t batch;
} layout;

typedef struct desc {
  int32_t trans_a;
} desc;

LAB_API size_t cublasLtGetVersion(void) { return LT_VERSION; }

LAB_API cublasStatus_t cublasLtCreate(void **handle) {
  *handle = calloc(1, 16);
  return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

LAB_API cublasStatus_t cublasLtDestroy(void *handle) {
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  (void)type, (void)ld;
  layout *l = calloc(1, sizeof *l);
  if (!l) return CUBLAS_STATUS_ALLOC_FAILED;
  *l = (layout){rows, cols, 1};
  *out = l;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatrixLayoutDestroy(layout *l) {
  free(l);
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t bytes) {
  if (attribute == LAYOUT_ROWS && bytes == sizeof l->rows) memcpy(&l->rows, value, bytes);
  if (attribute == LAYOUT_COLS && bytes == sizeof l->cols) memcpy(&l->cols, value, bytes);
  if (attribute == LAYOUT_BATCH && bytes == sizeof l->batch) memcpy(&l->batch, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatmulDescCreate(desc **out, int compute, int scale) {
  (void)compute, (void)scale;
  *out = calloc(1, sizeof **out);
  return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

LAB_API cublasStatus_t cublasLtMatmulDescDestroy(desc *d) {
  free(d);
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatmulDescSetAttribute(desc *d, int attribute, const void *value, size_t bytes) {
  if (attribute == DESC_TRANSA && bytes == sizeof d->trans_a) memcpy(&d->trans_a, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatmulPreferenceCreate(void **out) {
  *out = calloc(1, 16);
  return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

LAB_API cublasStatus_t cublasLtMatmulPreferenceDestroy(void *p) {
  free(p);
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t bytes) {
  (void)p, (void)attribute, (void)value, (void)bytes;
  return CUBLAS_STATUS_SUCCESS;
}

/* cublasLtMatmulHeuristicResult_t */
typedef struct heuristic {
  uint64_t algo[8];
  size_t workspace;
  int state; /* 0 = success */
  float waves;
  int reserved[4];
} heuristic;

LAB_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(void *h, desc *d, layout *a, layout *b, layout *c, layout *to,
                                                      void *preference, int wanted, heuristic *out, int *found) {
  (void)h, (void)d, (void)a, (void)b, (void)c, (void)to, (void)preference;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  out[0] = (heuristic){.waves = 1};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatmulAlgoCheck(void *h, desc *d, layout *a, layout *b, layout *c, layout *to,
                                               const void *algo, heuristic *out) {
  (void)h, (void)d, (void)a, (void)b, (void)c, (void)to, (void)algo;
  *out = (heuristic){.waves = 1};
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasLtMatmul(void *h, desc *d, const void *alpha, const void *a, layout *al, const void *b,
                                      layout *bl, const void *beta, const void *c, layout *cl, void *to, layout *tl,
                                      const void *algo, void *workspace, size_t bytes, cudaStream_t stream) {
  (void)h, (void)alpha, (void)a, (void)b, (void)bl, (void)beta, (void)c, (void)cl, (void)to, (void)algo,
      (void)workspace, (void)bytes;
  double k = (double)(d->trans_a ? al->rows : al->cols);
  return product_paced(stream, (double)tl->rows, (double)tl->cols, k, tl->batch);
}
