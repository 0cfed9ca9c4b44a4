/* NCCL's names of operations, types, algorithms and protocols (names.c). */
#ifndef FALCON_NAMES_H
#define FALCON_NAMES_H

#include "../include/falcon_shm.h"

uint8_t falcon_name_op(const char *func);         /* enum falcon_op; NONE where it is not known */
uint8_t falcon_name_type(const char *datatype);   /* ncclDataType_t */
uint8_t falcon_name_algorithm(const char *name);  /* falcon.Algorithm; 0 where it is not known */
uint8_t falcon_name_protocol(const char *name);   /* falcon.Protocol; 0 where it is not known */

#endif
