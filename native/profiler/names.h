/* NCCL's names of operations and types (names.c). */
#ifndef FALCON_NAMES_H
#define FALCON_NAMES_H

#include "../include/falcon_shm.h"

uint8_t falcon_name_op(const char *func);         /* enum falcon_op; NONE where it is not known */
uint8_t falcon_name_type(const char *datatype);   /* ncclDataType_t */

#endif
