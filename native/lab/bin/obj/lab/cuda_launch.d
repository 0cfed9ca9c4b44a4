bin/obj/lab/cuda_launch.o: cuda_launch.c cuda_internal.h lab_stream.h \
 include/cuda_runtime_api.h
cuda_internal.h:
lab_stream.h:
include/cuda_runtime_api.h:
