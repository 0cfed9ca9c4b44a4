bin/obj/lab/cuda_refused.o: cuda_refused.c cuda_internal.h lab_stream.h \
 include/cuda_runtime_api.h
cuda_internal.h:
lab_stream.h:
include/cuda_runtime_api.h:
