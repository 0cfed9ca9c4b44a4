bin/obj/lab/nccl_boot.o: nccl_boot.c nccl_internal.h include/nccl.h \
 include/cuda_runtime_api.h lab_stream.h include/cuda_runtime_api.h \
 nccl_events.h
nccl_internal.h:
include/nccl.h:
include/cuda_runtime_api.h:
lab_stream.h:
include/cuda_runtime_api.h:
nccl_events.h:
