/*
 * What the emulated network offers beyond NCCL. Exported by the lab's
 * libnccl.so.2; a real one does not have it.
 */
#ifndef FALCON_LAB_COMM_H
#define FALCON_LAB_COMM_H

#include "nccl.h"

/* From now on sends and receives on comm that start take as long as factor
 * times their bytes would (a positive number; 1 at first): a program that moves
 * a stand-in of its state can so take the time of the whole. Both sides of a
 * message must agree; collectives are not touched. */
ncclResult_t falcon_lab_comm_scale(ncclComm_t comm, double factor);

#endif
