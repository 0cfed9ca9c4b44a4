bin/obj/lab/nccl_events.o: nccl_events.c nccl_events.h \
 ../profiler/nccl_profiler.h
nccl_events.h:
../profiler/nccl_profiler.h:
