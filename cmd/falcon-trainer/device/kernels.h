/*
 * Elementwise kernels of the trainer, enqueued on a stream of the emulated
 * GPU. Activations are column-major, one sample a column. Matrix products
 * carry the modelled time; these take none of their own.
 */
#ifndef FALCON_TRAINER_KERNELS_H
#define FALCON_TRAINER_KERNELS_H

#include <stdint.h>

#include "cublas_v2.h"
#include "cuda_runtime_api.h"
#include "falcon_lab_launch.h"
#include "nccl.h"

/* C = op(A) op(B) + beta C. */
cublasStatus_t trainer_gemm(cublasHandle_t handle, int ta, int tb, int m, int n, int k,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);

/* unit = relu(pre + bias), square = unit^2; pre and unit may be one buffer. */
cudaError_t trainer_activate(cudaStream_t s, const float *pre, const float *bias, float *unit,
                             float *square, int width, int batch);

/* y = x + branch + bias. */
cudaError_t trainer_join(cudaStream_t s, const float *x, const float *branch, const float *bias,
                         float *y, int hidden, int batch);

/* From the gradient of the squares (in place) to that before activation;
 * grad_bias += its sum over samples; grad_out_bias += that of out. */
cudaError_t trainer_activate_back(cudaStream_t s, float *grad, const float *unit, float *grad_bias,
                                  int width, const float *out, float *grad_out_bias, int hidden,
                                  int batch);

/* x += y. */
cudaError_t trainer_add(cudaStream_t s, float *x, const float *y, int n);

/* loss += sum (y - target)^2 / hidden over the samples; grad is its gradient. */
cudaError_t trainer_loss(cudaStream_t s, const float *y, const float *target, float *grad,
                         double *loss, int hidden, int batch);

/* One step of Adam on n weights, from one version of them to another, which may
 * be the same memory; grad is scaled first. */
typedef struct trainer_adam_args {
  const float *weight, *moment1, *moment2;
  float *weight_out, *moment1_out, *moment2_out;
  const float *grad;
  int64_t n;
  float scale, rate, beta1, beta2, epsilon, correct1, correct2;
} trainer_adam_args;
cudaError_t trainer_adam(cudaStream_t s, const trainer_adam_args *args);

/* Nothing but modelled time. */
cudaError_t trainer_spend(cudaStream_t s, double flops);

/* ncclCommInitRankConfig with a name, id by pointer; blocking = 0 returns at
 * once, and ncclCommGetAsyncError says when the communicator is ready. */
ncclResult_t trainer_comm_init(ncclComm_t *comm, int size, const void *id, int rank,
                               const char *name, int blocking);

/* Whether the emulated hardware is paced; what is real needs no emulation: 0. */
int trainer_paced(void);

/* Sends and receives on comm take as long as factor times their bytes; nothing
 * on a library that is not the lab's. */
void trainer_comm_scale(ncclComm_t comm, double factor);

#endif
