bin/obj/lab/cublaslt_api.o: cublaslt_api.c include/cublas_v2.h \
 include/cuda_runtime_api.h lab_stream.h include/cuda_runtime_api.h
include/cublas_v2.h:
include/cuda_runtime_api.h:
lab_stream.h:
include/cuda_runtime_api.h:
