bin/obj/lab/cuda_props.o: cuda_props.c cuda_internal.h lab_stream.h \
 include/cuda_runtime_api.h
cuda_internal.h:
lab_stream.h:
include/cuda_runtime_api.h:
