#include "kernels.h"

/* A square root that need not set errno can be vectorised; no fused
 * multiply-add, so that weights do not depend on the machine. */
#pragma GCC optimize("no-math-errno", "fp-contract=off")

#include <dlfcn.h>
#include <math.h>
#include <string.h>

cublasStatus_t trainer_gemm(cublasHandle_t handle, int ta, int tb, int m, int n, int k,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc) {
  const float alpha = 1;
  return cublasSgemm(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m, n,
                     k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}

typedef struct activate_args {
  const float *pre, *bias;
  float *unit, *square;
  int width, batch;
} activate_args;

static void activate(void *p) {
  const activate_args *a = p;
  for (int s = 0; s < a->batch; s++) {
    const size_t column = (size_t)s * (size_t)a->width;
    for (int i = 0; i < a->width; i++) {
      float v = a->pre[column + i] + a->bias[i];
      v = v > 0 ? v : 0;
      a->unit[column + i] = v;
      a->square[column + i] = v * v;
    }
  }
}

cudaError_t trainer_activate(cudaStream_t s, const float *pre, const float *bias, float *unit,
                             float *square, int width, int batch) {
  const activate_args a = {pre, bias, unit, square, width, batch};
  return falcon_lab_launch(s, activate, &a, sizeof a, 0);
}

typedef struct join_args {
  const float *x, *branch, *bias;
  float *y;
  int hidden, batch;
} join_args;

static void join(void *p) {
  const join_args *a = p;
  for (int s = 0; s < a->batch; s++) {
    const size_t column = (size_t)s * (size_t)a->hidden;
    for (int i = 0; i < a->hidden; i++)
      a->y[column + i] = a->x[column + i] + a->branch[column + i] + a->bias[i];
  }
}

cudaError_t trainer_join(cudaStream_t s, const float *x, const float *branch, const float *bias,
                         float *y, int hidden, int batch) {
  const join_args a = {x, branch, bias, y, hidden, batch};
  return falcon_lab_launch(s, join, &a, sizeof a, 0);
}

typedef struct activate_back_args {
  float *grad;
  const float *unit;
  float *grad_bias;
  const float *out;
  float *grad_out_bias;
  int width, hidden, batch;
} activate_back_args;

static void activate_back(void *p) {
  const activate_back_args *a = p;
  for (int s = 0; s < a->batch; s++) {
    const size_t column = (size_t)s * (size_t)a->width;
    for (int i = 0; i < a->width; i++) {
      const float g = 2 * a->unit[column + i] * a->grad[column + i];
      a->grad[column + i] = g;
      a->grad_bias[i] += g;
    }
  }
  for (int s = 0; s < a->batch; s++)
    for (int i = 0; i < a->hidden; i++)
      a->grad_out_bias[i] += a->out[(size_t)s * (size_t)a->hidden + i];
}

cudaError_t trainer_activate_back(cudaStream_t s, float *grad, const float *unit, float *grad_bias,
                                  int width, const float *out, float *grad_out_bias, int hidden,
                                  int batch) {
  const activate_back_args a = {grad, unit, grad_bias, out, grad_out_bias, width, hidden, batch};
  return falcon_lab_launch(s, activate_back, &a, sizeof a, 0);
}

typedef struct add_args {
  float *x;
  const float *y;
  int n;
} add_args;

static void add(void *p) {
  const add_args *a = p;
  for (int i = 0; i < a->n; i++) a->x[i] += a->y[i];
}

cudaError_t trainer_add(cudaStream_t s, float *x, const float *y, int n) {
  const add_args a = {x, y, n};
  return falcon_lab_launch(s, add, &a, sizeof a, 0);
}

typedef struct loss_args {
  const float *y, *target;
  float *grad;
  double *loss;
  int hidden, batch;
} loss_args;

/* The sum is kept in double so that its order does not show in the loss. */
static void loss(void *p) {
  const loss_args *a = p;
  const float slope = 2.0f / (float)a->hidden;
  double sum = 0;
  for (int i = 0; i < a->hidden * a->batch; i++) {
    const float d = a->y[i] - a->target[i];
    a->grad[i] = slope * d;
    sum += (double)d * d;
  }
  *a->loss += sum / a->hidden;
}

cudaError_t trainer_loss(cudaStream_t s, const float *y, const float *target, float *grad,
                         double *total, int hidden, int batch) {
  const loss_args a = {y, target, grad, total, hidden, batch};
  return falcon_lab_launch(s, loss, &a, sizeof a, 0);
}

static void adam(void *p) {
  const trainer_adam_args *a = p;
  for (int64_t i = 0; i < a->n; i++) {
    const float g = a->scale * a->grad[i];
    const float m = a->beta1 * a->moment1[i] + (1 - a->beta1) * g;
    const float v = a->beta2 * a->moment2[i] + (1 - a->beta2) * g * g;
    a->weight_out[i] = a->weight[i] - a->rate * m * a->correct1 / (sqrtf(v * a->correct2) + a->epsilon);
    a->moment1_out[i] = m;
    a->moment2_out[i] = v;
  }
}

cudaError_t trainer_adam(cudaStream_t s, const trainer_adam_args *args) {
  return falcon_lab_launch(s, adam, args, sizeof *args, 0);
}

static void nothing(void *p) { (void)p; }

cudaError_t trainer_spend(cudaStream_t s, double flops) {
  return falcon_lab_launch(s, nothing, &flops, sizeof flops, flops);
}

ncclResult_t trainer_comm_init(ncclComm_t *comm, int size, const void *id, int rank,
                               const char *name, int blocking) {
  ncclUniqueId unique;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  memcpy(&unique, id, sizeof unique);
  config.commName = name;
  if (!blocking) config.blocking = 0;
  return ncclCommInitRankConfig(comm, size, unique, rank, &config);
}

/* Looked up, so that the program also starts with libraries that lack them. */
int trainer_paced(void) {
  int (*paced)(void);
  void *found = dlsym(RTLD_DEFAULT, "falcon_lab_paced");
  memcpy(&paced, &found, sizeof found);
  return found && paced();
}

void trainer_comm_scale(ncclComm_t comm, double factor) {
  ncclResult_t (*scale)(ncclComm_t, double);
  void *found = dlsym(RTLD_DEFAULT, "falcon_lab_comm_scale");
  memcpy(&scale, &found, sizeof found);
  if (found) scale(comm, factor);
}
