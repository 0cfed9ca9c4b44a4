/* Element types and reductions. acc = acc op x, element by element: the order
 * over ranks is the caller's. */
#include "nccl_internal.h"

size_t type_bytes(ncclDataType_t t) {
  switch (t) {
    case ncclInt8: case ncclUint8: case ncclFloat8e4m3: case ncclFloat8e5m2: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    default: return 0;
  }
}

/* Half-width floats are moved, never added: the lab trains in fp32. */
int reducible(ncclDataType_t t) {
  return type_bytes(t) && t != ncclFloat16 && t != ncclBfloat16 && t != ncclFloat8e4m3 && t != ncclFloat8e5m2;
}

#define LOOP(T, expr)                                    \
  do {                                                   \
    T *restrict a = acc;                                 \
    const T *restrict b = x;                             \
    for (size_t i = 0; i < count; i++) a[i] = (T)(expr); \
  } while (0)

#define REDUCE(name, T)                                                                \
  static void name(void *acc, const void *x, size_t count, ncclRedOp_t op) {           \
    switch (op) {                                                                      \
      case ncclProd: LOOP(T, a[i] * b[i]); break;                                      \
      case ncclMax: LOOP(T, a[i] > b[i] ? a[i] : b[i]); break;                         \
      case ncclMin: LOOP(T, a[i] < b[i] ? a[i] : b[i]); break;                         \
      default: LOOP(T, a[i] + b[i]); break;                                            \
    }                                                                                  \
  }

/* Signed sums wrap, as they do on the device, so they are done unsigned. */
#define REDUCE_SIGNED(name, T, U)                                                      \
  static void name(void *acc, const void *x, size_t count, ncclRedOp_t op) {           \
    switch (op) {                                                                      \
      case ncclProd: LOOP(T, (U)a[i] * (U)b[i]); break;                                \
      case ncclMax: LOOP(T, a[i] > b[i] ? a[i] : b[i]); break;                         \
      case ncclMin: LOOP(T, a[i] < b[i] ? a[i] : b[i]); break;                         \
      default: LOOP(T, (U)a[i] + (U)b[i]); break;                                      \
    }                                                                                  \
  }

REDUCE_SIGNED(reduce_i8, int8_t, uint8_t)
REDUCE_SIGNED(reduce_i32, int32_t, uint32_t)
REDUCE_SIGNED(reduce_i64, int64_t, uint64_t)
REDUCE(reduce_u8, uint8_t)
REDUCE(reduce_u32, uint32_t)
REDUCE(reduce_u64, uint64_t)
REDUCE(reduce_f32, float)
REDUCE(reduce_f64, double)

void reduce_into(void *acc, const void *x, size_t count, ncclDataType_t t, ncclRedOp_t op) {
  switch (t) {
    case ncclInt8: reduce_i8(acc, x, count, op); break;
    case ncclUint8: reduce_u8(acc, x, count, op); break;
    case ncclInt32: reduce_i32(acc, x, count, op); break;
    case ncclUint32: reduce_u32(acc, x, count, op); break;
    case ncclInt64: reduce_i64(acc, x, count, op); break;
    case ncclUint64: reduce_u64(acc, x, count, op); break;
    case ncclFloat64: reduce_f64(acc, x, count, op); break;
    default: reduce_f32(acc, x, count, op); break;
  }
}

#define DIVIDE(T)                                               \
  do {                                                          \
    T *a = acc;                                                 \
    for (size_t i = 0; i < count; i++) a[i] = (T)(a[i] / (T)n); \
  } while (0)

void reduce_finish(void *acc, size_t count, ncclDataType_t t, ncclRedOp_t op, int n) {
  if (op != ncclAvg) return;
  switch (t) {
    case ncclInt8: DIVIDE(int8_t); break;
    case ncclUint8: DIVIDE(uint8_t); break;
    case ncclInt32: DIVIDE(int32_t); break;
    case ncclUint32: DIVIDE(uint32_t); break;
    case ncclInt64: DIVIDE(int64_t); break;
    case ncclUint64: DIVIDE(uint64_t); break;
    case ncclFloat64: DIVIDE(double); break;
    default: DIVIDE(float); break;
  }
}
