bin/obj/lab/cuda_stream.o: cuda_stream.c cuda_internal.h lab_stream.h \
 include/cuda_runtime_api.h lab_state.h ../include/falcon_lab.h
cuda_internal.h:
lab_stream.h:
include/cuda_runtime_api.h:
lab_state.h:
../include/falcon_lab.h:
