/*
 * What is known of NCCL's choice of algorithm without its profiler interface: the
 * environment that bounds it. It is read on a thread of the program's that uses
 * NCCL anyway, after NCCL has added what its configuration files say.
 */
#include "hook.h"

#include <stdlib.h>
#include <string.h>

static void note_text(char *to, const char *variable) {
  const char *v = getenv(variable);
  size_t n = v ? strnlen(v, FALCON_NAME_BYTES) : 0;
  if (n && n < FALCON_NAME_BYTES) memcpy(to, v, n + 1);
}

static uint32_t number_of(const char *variable) {
  const char *v = getenv(variable);
  long n = v ? strtol(v, NULL, 0) : 0;
  return n > 0 && n <= UINT8_MAX ? (uint32_t)n : 0;
}

FALCON_COLD void falcon_note_environment(void) {
  static _Atomic bool once;
  if (atomic_exchange(&once, true)) return;
  falcon_control *c = falcon_hook.control;
  note_text(c->nccl_algo, "NCCL_ALGO");
  note_text(c->nccl_proto, "NCCL_PROTO");
  uint32_t least = number_of("NCCL_MIN_NCHANNELS");
  c->nccl_channels = least == number_of("NCCL_MAX_NCHANNELS") ? least : 0;
  __atomic_store_n(&c->nccl_env, 1, __ATOMIC_RELEASE);
}
