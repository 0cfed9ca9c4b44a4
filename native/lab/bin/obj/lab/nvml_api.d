bin/obj/lab/nvml_api.o: nvml_api.c lab_state.h ../include/falcon_lab.h \
 nvml_types.h
lab_state.h:
../include/falcon_lab.h:
nvml_types.h:
