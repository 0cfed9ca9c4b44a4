bin/obj/lab/cublas_api.o: cublas_api.c cublas_gemm.h include/cublas_v2.h \
 include/cuda_runtime_api.h lab_stream.h include/cuda_runtime_api.h
cublas_gemm.h:
include/cublas_v2.h:
include/cuda_runtime_api.h:
lab_stream.h:
include/cuda_runtime_api.h:
