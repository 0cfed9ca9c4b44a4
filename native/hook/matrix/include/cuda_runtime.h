/* As much of the CUDA headers as nccl.h needs to be compiled without them. */
#ifndef FALCON_MATRIX_CUDA_RUNTIME_H
#define FALCON_MATRIX_CUDA_RUNTIME_H
#include <stddef.h>
#define CUDART_VERSION 12000
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef enum { cudaSuccess = 0 } cudaError_t;
#endif
