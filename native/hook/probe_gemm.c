/*
 * The computation test: multiplications in the job's precision, back to back. A job
 * that sends 16 or 8 bit numbers computes on tensor cores, in 16 bit here; any other,
 * and one whose library or GPU has no such product, in single precision.
 */
#include "clock.h"
#include "nccl_abi.h"
#include "probe.h"

#define SIDE_MAX 32768u
#define PATTERN 0x3c /* single 0.0115, bfloat16 0.0115, half 1.06: finite sums, and no zeros, which draw less power */
#define FREE_BYTES_MIN (256ull << 20) /* code of a kernel may be loaded at its first launch */

/* Of cublas_v2.h. */
enum { R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, ALGORITHM_DEFAULT = -1 };
typedef int (*sgemm_fn)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
typedef int (*gemm_ex_fn)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *,
                          void *, int, int, int, int);

typedef struct product {
  sgemm_fn single;
  gemm_ex_fn mixed; /* NULL: single precision */
  int type;         /* of mixed: R_ above */
  int n;
} product;

static product choose(int n) {
  product p = {.single = (sgemm_fn)falcon_cublas("cublasSgemm_v2"), .n = n};
  uint32_t half = atomic_load_explicit(&falcon_hook.half, memory_order_relaxed);
  if (half) p.mixed = (gemm_ex_fn)falcon_cublas("cublasGemmEx");
  p.type = half == NCCL_FLOAT16 ? R_16F : R_16BF;
  return p;
}

static size_t operand_bytes(const product *p) { return (size_t)p->n * (size_t)p->n * (p->mixed ? 2 : sizeof(float)); }

static bool multiply(const product *p) {
  const float one = 1, zero = 0;
  int n = p->n;
  char *a = falcon_work.memory, *b = a + operand_bytes(p), *c = b + operand_bytes(p);
  if (p->mixed)
    return !p->mixed(falcon_work.cublas, 0, 0, n, n, n, &one, a, p->type, n, b, p->type, n, &zero, c, p->type, n, COMPUTE_32F, ALGORITHM_DEFAULT);
  return !p->single(falcon_work.cublas, 0, 0, n, n, n, &one, (float *)(void *)a, n, (float *)(void *)b, n, &zero, (float *)(void *)c, n);
}

static bool room(falcon_trial *t, uint64_t n) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  size_t free_bytes = 0, total = 0;
  bool fits = 3 * n * n * sizeof(float) <= falcon_work.bytes - falcon_work.cublas_bytes;
  if (fits && falcon_cuda_fine(cuda->free_info(&free_bytes, &total)) && free_bytes >= FREE_BYTES_MIN) return true;
  return falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_NO_WORKSPACE);
}

/* One untimed, which also shows whether the library has the product, then the repeats
 * with an event between any two. */
static bool launch(falcon_trial *t, product *p) {
  const falcon_cuda_api *cuda = falcon_cuda_find();
  bool ok = falcon_cuda_fine(cuda->fill(falcon_work.memory, PATTERN, 2 * (size_t)p->n * (size_t)p->n * sizeof(float), falcon_work.computes));
  for (uint32_t i = 0; ok && i <= t->order.repeats; i++) {
    ok = multiply(p);
    if (!ok && !i && p->mixed) {
      p->mixed = NULL;
      ok = multiply(p);
    }
    ok = ok && falcon_cuda_fine(cuda->event_record(falcon_work.event[i], falcon_work.computes));
    if (!i) t->out.setup_ns = (int64_t)(falcon_mono_ns() - t->start_ns);
  }
  t->out.bytes = operand_bytes(p);
  return ok || falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
}

void falcon_probe_gemm(falcon_trial *t) {
  product p = choose((int)t->order.n);
  if (!falcon_work.cublas || !p.single) {
    falcon_trial_end(t, FALCON_TEST_REFUSED, FALCON_REASON_NO_LIBRARY);
    return;
  }
  if (t->order.n < 1 || t->order.n > SIDE_MAX) {
    falcon_trial_end(t, FALCON_TEST_FAILED, FALCON_REASON_FAILED);
    return;
  }
  if (room(t, t->order.n) && launch(t, &p) && falcon_trial_await(t, falcon_work.event[t->order.repeats]))
    falcon_trial_times(t);
}
