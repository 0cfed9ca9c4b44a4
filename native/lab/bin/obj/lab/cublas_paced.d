bin/obj/lab/cublas_paced.o: cublas_paced.c include/cublas_v2.h \
 include/cuda_runtime_api.h lab_stream.h include/cuda_runtime_api.h
include/cublas_v2.h:
include/cuda_runtime_api.h:
lab_stream.h:
include/cuda_runtime_api.h:
