/* Keeps signals that the file could cause away from the program (guard.c). */
#ifndef FALCON_GUARD_H
#define FALCON_GUARD_H

#include <signal.h>

#include "hook.h"

/* Between begin and end this thread makes and writes files: a limit on their size is an
 * error (EFBIG) and no signal. */
typedef struct falcon_quiet { sigset_t size, before; bool theirs, on; } falcon_quiet;
void falcon_quiet_begin(falcon_quiet *q);
void falcon_quiet_end(falcon_quiet *q);

/* From now on a truncated file is replaced by memory of this process. Once, after the
 * header is in the mapping. */
void falcon_guard_mapping(char *base, size_t bytes);

#endif
