/* Profile windows of the plug-in (device.c), driven by the side thread. */
#ifndef FALCON_DEVICE_H
#define FALCON_DEVICE_H

#include "profiler.h"

extern const falcon_device falcon_device_times __attribute__((visibility("hidden")));
bool falcon_device_tick(uint64_t now_ns); /* true while a window needs the side thread */

#endif
