/*
 * A training process on strings: agent/ring's tests drive it through stdin, one
 * command a line, and read what the hook made of it. Every command is answered
 * with one line.
 */
#include <dlfcn.h>

#include "../../include/falcon_job.h"
#include "nccl.h"

int cudaSetDevice(int device);

static void *comm;

static void calls(long n) {
  for (long i = 0; i < n; i++) CHECK(ncclAllReduce(NULL, NULL, 256, 7, 0, comm, (void *)0x10) == 0);
}

static long run(const char *verb, long arg) {
  static falcon_job_order order;
  __typeof__(&falcon_job_begin_iteration) begin = (__typeof__(&falcon_job_begin_iteration))dlsym(RTLD_DEFAULT, "falcon_job_begin_iteration");
  __typeof__(&falcon_job_poll) poll = (__typeof__(&falcon_job_poll))dlsym(RTLD_DEFAULT, "falcon_job_poll");
  __typeof__(&falcon_job_fetch) fetch = (__typeof__(&falcon_job_fetch))dlsym(RTLD_DEFAULT, "falcon_job_fetch");
  __typeof__(&falcon_job_ack) ack = (__typeof__(&falcon_job_ack))dlsym(RTLD_DEFAULT, "falcon_job_ack");
  if (!strcmp(verb, "init")) return cudaSetDevice(3) || ncclCommInitRank(&comm, 4, test_id((int)arg), 1);
  if (!strcmp(verb, "calls")) return calls(arg), arg;
  if (!strcmp(verb, "iteration")) return begin(arg), arg;
  if (!strcmp(verb, "poll")) return (long)poll(arg);
  if (!strcmp(verb, "fetch")) return fetch((uint64_t)arg, &order) ? -1 : order.values[order.n - 1];
  if (!strcmp(verb, "ack")) return ack(order.id, arg, 0), arg;
  return -2;
}

int main(void) {
  char verb[32];
  long arg;
  while (scanf("%31s %ld", verb, &arg) == 2 && strcmp(verb, "quit")) {
    printf("%ld\n", run(verb, arg));
    fflush(stdout);
  }
  return 0;
}
