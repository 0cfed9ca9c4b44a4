bin/obj/lab/cuda_pace.o: cuda_pace.c cuda_internal.h lab_stream.h \
 include/cuda_runtime_api.h lab_state.h ../include/falcon_lab.h
cuda_internal.h:
lab_stream.h:
include/cuda_runtime_api.h:
lab_state.h:
../include/falcon_lab.h:
