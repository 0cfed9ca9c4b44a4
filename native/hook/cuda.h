/*
 * The CUDA runtime that is in the process, as far as pauses and tests ask it
 * anything: found, never loaded. Errors of our own calls are taken back, so
 * that the program's next look does not find them.
 */
#ifndef FALCON_CUDA_H
#define FALCON_CUDA_H

#include "hook.h"

#define CUDA_NOT_READY 600
#define CUDA_CAPTURE_RELAXED 2 /* this thread's calls never spoil a capture of another thread */
#define CUDA_NO_TIMING 2u      /* of an event */
#define CUDA_NON_BLOCKING 1u   /* of a stream */

typedef struct falcon_cuda_api {
  int (*event_create)(void **, unsigned);
  int (*event_record)(void *, void *);
  int (*event_query)(void *);
  int (*event_elapsed)(float *, void *, void *);
  int (*capturing)(void *, int *);
  int (*get_device)(int *);
  int (*set_device)(int);
  /* May be NULL: */
  int (*last_error)(void);
  int (*exchange_mode)(int *);
  int (*alloc)(void **, size_t);
  int (*free_info)(size_t *, size_t *);
  int (*fill)(void *, int, size_t, void *);
  int (*stream_create)(void **, unsigned);
  int (*stream_query)(void *);
  int (*stream_sync)(void *);
} falcon_cuda_api;

/* NULL while there is no usable runtime in the process. */
const falcon_cuda_api *falcon_cuda_find(void);
/* True when rc is no error; an error is taken back. */
bool falcon_cuda_fine(int rc);
/* Puts a thread of the hook on the device of the training's communicators, in
 * relaxed capture mode; the device, or -1 while none is known. */
int falcon_cuda_enter(void);

#endif
