/* Inside libcudart: streams, events, errors. Nothing here is exported. */
#ifndef FALCON_LAB_CUDA_INTERNAL_H
#define FALCON_LAB_CUDA_INTERNAL_H

#include <pthread.h>
#include <stdint.h>

#include "lab_stream.h"

#define LAB_API __attribute__((visibility("default")))

enum item_kind { ITEM_OP, ITEM_RECORD, ITEM_WAIT_EVENT, ITEM_WAIT_STREAM };

typedef struct item {
  struct item *next;
  enum item_kind kind;
  int64_t enqueue_ns;
  falcon_lab_op op;
  cudaEvent_t event;
  cudaStream_t other;
  uint64_t seq; /* of the event or of the other stream, to wait for */
} item;

/* A stream: a FIFO and the thread that works it. The worker owns nothing but
 * the item in hand; mu guards the rest. Lives until its last reference. */
struct CUstream_st {
  struct CUstream_st *next; /* registry, under its lock */
  int refs;                 /* likewise */
  int listed;               /* likewise */
  int working;              /* likewise: the worker has started */
  int device;
  unsigned flags;
  int is_default;
  pthread_mutex_t mu;
  pthread_cond_t work, done, room;
  item *head, **tail;
  unsigned depth;
  uint64_t enqueued, completed;
  int closing;
  int failed;        /* first error since the last synchronise */
  int64_t end_ns;    /* modelled end of the last operation */
  int64_t floor_ns;  /* earliest start of the next one after a late wake-up */
  int exact;         /* the last item was a transfer: the next event carries its end */
};

#define EVENT_MAGIC 0x45564e54u
struct CUevent_st {
  unsigned magic, flags;
  int refs;
  pthread_mutex_t mu;
  pthread_cond_t cond;
  uint64_t recorded, done;
  int64_t time_ns;
  int failed;
  uint64_t era; /* of the device when it fired: an error of an earlier one is no error any more */
};

/* cuda_stream.c */
cudaStream_t stream_acquire(cudaStream_t handle); /* NULL for a bad handle */
void stream_release(cudaStream_t s);
cudaError_t stream_push(cudaStream_t s, item *it);
item *item_new(enum item_kind kind);
cudaError_t stream_wait(cudaStream_t s);
cudaError_t stream_wait_all(void);

/* cuda_event.c */
void event_release(cudaEvent_t e);
void event_fire(cudaEvent_t e, uint64_t seq, int64_t time_ns, int failed);
int64_t event_await(cudaEvent_t e, uint64_t seq, int *failed);
void events_forgive(void); /* the device has told its error: events that fired before have none */

/* cuda_device.c: remembers and returns the thread's last error. */
cudaError_t cuda_fail(cudaError_t error);
int current_device(void);

/* cuda_launch.c: a launch that computes nothing and takes the time of so many operations. */
cudaError_t launch_paced(cudaStream_t stream, double flops);

/* cuda_control.c: a kernel of compiled code was launched; operators that compute control data are wanted now. */
void control_note_launch(cudaStream_t stream);
void control_load(void);

/* cuda_memory.c: what p points into; device: whose it is. As enum cudaMemoryType. */
enum memory_kind { MEMORY_PLAIN = 0, MEMORY_PINNED = 1, MEMORY_DEVICE = 2 };
int memory_kind(const void *p, int *device);

/* cuda_pace.c */
double pace_kernel_s(int device, double flops);
void pace_until(int64_t target_ns, atomic_int *cancel);
int64_t host_now_ns(void);            /* the thread's modelled host time */
void host_woke(int64_t should_ns);    /* after a blocking wait that should have ended then */

#endif
