bin/obj/lab/nccl_comm.o: nccl_comm.c nccl_internal.h include/nccl.h \
 include/cuda_runtime_api.h lab_stream.h include/cuda_runtime_api.h \
 nccl_events.h
nccl_internal.h:
include/nccl.h:
include/cuda_runtime_api.h:
lab_stream.h:
include/cuda_runtime_api.h:
nccl_events.h:
