bin/obj/lab/nccl_model.o: nccl_model.c include/falcon_lab_comm.h \
 include/nccl.h include/cuda_runtime_api.h nccl_internal.h include/nccl.h \
 lab_stream.h include/cuda_runtime_api.h nccl_events.h
include/falcon_lab_comm.h:
include/nccl.h:
include/cuda_runtime_api.h:
nccl_internal.h:
include/nccl.h:
lab_stream.h:
include/cuda_runtime_api.h:
nccl_events.h:
