bin/obj/lab/cublas_gemm.o: cublas_gemm.c cublas_gemm.h
cublas_gemm.h:
