/*
 * What a library has beside the file, the rings and the side thread. The hook and
 * the profiler plug-in (../profiler) share those and each define these functions.
 */
#ifndef FALCON_PARTS_H
#define FALCON_PARTS_H

#include "hook.h"

bool falcon_part_hooks(void);              /* it stands before NCCL's functions */
void falcon_part_load(void);               /* once, when the library is loaded */
void falcon_part_created(void);            /* the file is there, not yet published */
void falcon_part_started(void);            /* the process is active */
void falcon_part_forked(void);             /* in the child */
bool falcon_folder(char *out);             /* of this user's files; out has PATH_MAX bytes */
void falcon_part_exiting(void);            /* exit() was called; before the destructors */
void falcon_part_closing(void);            /* the end, also of a process that was never active */
uint64_t falcon_part_tick(uint64_t now_ns, uint32_t round); /* side thread; ns to the next round */

void falcon_proof_fill(falcon_header *h);  /* who this process is; fields stay 0 where /proc can't be read */
/* Makes the file at path, which becomes longer where the name is taken; -1 where it can't. */
int falcon_proof_file(char *path, size_t size, const falcon_header *h);
/* Leaves the header alone at path, for the agent to say what the kernel refused. */
void falcon_proof_refused(const char *path, const falcon_header *h, uint32_t call, int error);
void falcon_proof_retire(void);            /* the end of a process that has left such a header */

#endif
