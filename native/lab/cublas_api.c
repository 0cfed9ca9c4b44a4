/* libcublas stand-in: GEMMs enqueued on the handle's stream. */
#include <stdlib.h>

#include "cublas_gemm.h"
#include "include/cublas_v2.h"
#include "lab_stream.h"

cublasStatus_t product_paced(cudaStream_t stream, double m, double n, double k, double batch);

#define LAB_API __attribute__((visibility("default")))
#define CUBLAS_VERSION 120800
#define HANDLE_MAGIC 0x43424c53u

struct cublasContext {
  unsigned magic;
  cudaStream_t stream;
  cublasMath_t math;
};

typedef struct job {
  gemm g;
  long long stride_a, stride_b, stride_c;
  int batch;
} job;

static int valid(cublasHandle_t h) { return h && h->magic == HANDLE_MAGIC; }

LAB_API cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  cublasHandle_t h = calloc(1, sizeof *h);
  if (!h) return CUBLAS_STATUS_ALLOC_FAILED;
  h->magic = HANDLE_MAGIC;
  *handle = h;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasDestroy_v2(cublasHandle_t h) {
  if (!valid(h)) return CUBLAS_STATUS_NOT_INITIALIZED;
  h->magic = 0;
  free(h);
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasGetVersion_v2(cublasHandle_t h, int *version) {
  (void)h;
  if (!version) return CUBLAS_STATUS_INVALID_VALUE;
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t stream) {
  if (!valid(h)) return CUBLAS_STATUS_NOT_INITIALIZED;
  h->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasGetMathMode(cublasHandle_t h, cublasMath_t *mode) {
  if (!valid(h)) return CUBLAS_STATUS_NOT_INITIALIZED;
  *mode = h->math;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasGetStream_v2(cublasHandle_t h, cudaStream_t *stream) {
  if (!valid(h)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!stream) return CUBLAS_STATUS_INVALID_VALUE;
  *stream = h->stream;
  return CUBLAS_STATUS_SUCCESS;
}

/* Remembered, but all maths here is plain fp32. */
LAB_API cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode) {
  if (!valid(h)) return CUBLAS_STATUS_NOT_INITIALIZED;
  h->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

LAB_API const char *cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the handle is not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "out of memory";
    case CUBLAS_STATUS_INVALID_VALUE: return "invalid argument";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the operation could not be launched";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported by the lab";
    default: return "internal error";
  }
}

static int run_job(void *arg, falcon_lab_run *run) {
  job *j = arg;
  (void)run;
  if (falcon_lab_hollow()) return 0;
  for (int i = 0; i < j->batch; i++) {
    gemm g = j->g;
    g.a += i * j->stride_a;
    g.b += i * j->stride_b;
    g.c += i * j->stride_c;
    if (gemm_run(&g)) return cudaErrorMemoryAllocation;
  }
  return 0;
}

static int at_least(int ld, int rows) { return ld >= (rows > 1 ? rows : 1); }

static int shapes_ok(const gemm *g) {
  return g->m >= 0 && g->n >= 0 && g->k >= 0 && at_least(g->lda, g->trans_a ? g->k : g->m) &&
         at_least(g->ldb, g->trans_b ? g->n : g->k) && at_least(g->ldc, g->m);
}

static cublasStatus_t submit(cublasHandle_t h, const job *j) {
  if (!valid(h)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!shapes_ok(&j->g) || j->batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (j->g.m == 0 || j->g.n == 0 || j->batch == 0) return CUBLAS_STATUS_SUCCESS;
  if ((j->g.k && (!j->g.a || !j->g.b)) || !j->g.c) return CUBLAS_STATUS_INVALID_VALUE;
  job *heap = malloc(sizeof *heap);
  if (!heap) return CUBLAS_STATUS_ALLOC_FAILED;
  *heap = *j;
  falcon_lab_host_launch();
  falcon_lab_op op = {.fn = run_job, .arg = heap, .release = free};
  op.flops = 2.0 * j->g.m * j->g.n * j->g.k * j->batch;
  return falcon_lab_enqueue(h->stream, &op) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

LAB_API cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb,
                                                 int m, int n, int k, const float *alpha, const float *A, int lda,
                                                 long long int strideA, const float *B, int ldb,
                                                 long long int strideB, const float *beta, float *C, int ldc,
                                                 long long int strideC, int batchCount) {
  if ((unsigned)ta > CUBLAS_OP_C || (unsigned)tb > CUBLAS_OP_C || !alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
  job j = {.stride_a = strideA, .stride_b = strideB, .stride_c = strideC, .batch = batchCount};
  j.g = (gemm){.trans_a = ta != CUBLAS_OP_N, .trans_b = tb != CUBLAS_OP_N, .m = m, .n = n, .k = k,
               .alpha = *alpha, .beta = *beta, .a = A, .b = B, .c = C, .lda = lda, .ldb = ldb, .ldc = ldc};
  return submit(h, &j);
}

LAB_API cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                      int k, const float *alpha, const float *A, int lda, const float *B, int ldb,
                                      const float *beta, float *C, int ldc) {
  return cublasSgemmStridedBatched(h, ta, tb, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1);
}

LAB_API cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                    const void *alpha, const void *A, cudaDataType Atype, int lda, const void *B,
                                    cudaDataType Btype, int ldb, const void *beta, void *C, cudaDataType Ctype,
                                    int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
  (void)algo;
  int plain = Atype == CUDA_R_32F && Btype == CUDA_R_32F && Ctype == CUDA_R_32F;
  if (!plain || (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC)) {
    if (!falcon_lab_hollow()) return CUBLAS_STATUS_NOT_SUPPORTED;
    return valid(h) ? product_paced(h->stream, m, n, k, 1) : CUBLAS_STATUS_NOT_INITIALIZED;
  }
  return cublasSgemm_v2(h, ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
