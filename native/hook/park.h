/* What parking (park.c) has of the job adapter (job.c). */
#ifndef FALCON_PARK_H
#define FALCON_PARK_H

#include "hook.h"

falcon_control *falcon_adapter(void); /* the control block for the adapter's calls, NULL without one */
void falcon_orders_void(void); /* orders of before are void */
bool falcon_order_read(const falcon_shm_order *from, falcon_shm_order *to); /* false: being written, or absurd */

#endif
