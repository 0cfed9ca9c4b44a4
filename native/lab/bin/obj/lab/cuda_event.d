bin/obj/lab/cuda_event.o: cuda_event.c cuda_internal.h lab_stream.h \
 include/cuda_runtime_api.h include/falcon_lab_launch.h \
 include/cuda_runtime_api.h
cuda_internal.h:
lab_stream.h:
include/cuda_runtime_api.h:
include/falcon_lab_launch.h:
include/cuda_runtime_api.h:
