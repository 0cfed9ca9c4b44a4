bin/obj/lab/nccl_conn.o: nccl_conn.c nccl_internal.h include/nccl.h \
 include/cuda_runtime_api.h lab_stream.h include/cuda_runtime_api.h \
 nccl_events.h
nccl_internal.h:
include/nccl.h:
include/cuda_runtime_api.h:
lab_stream.h:
include/cuda_runtime_api.h:
nccl_events.h:
