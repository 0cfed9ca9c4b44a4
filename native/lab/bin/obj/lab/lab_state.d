bin/obj/lab/lab_state.o: lab_state.c lab_state.h ../include/falcon_lab.h
lab_state.h:
../include/falcon_lab.h:
