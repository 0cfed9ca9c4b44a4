/*
 * A stand-in for the hook's side of falcon_job.h: hands out the orders in
 * $FAKE_ORDERS ("id kind epoch at n v.. ; ..") and writes every call to
 * $FAKE_TRACE.RANK. Rank r has prepared an order only at iteration
 * at + r % 3, as if its agent were late; $FAKE_FORGETFUL names a rank that
 * polls orders but can't fetch them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "falcon_job.h"

enum { ORDERS_MAX = 8 };
static struct { falcon_job_order order; long at; } orders[ORDERS_MAX];
static int count, rank = -1;
static FILE *trace;

static long number(const char *name, long fallback) {
  const char *s = getenv(name);
  return s && *s ? strtol(s, NULL, 10) : fallback;
}

static void load(void) {
  char path[4096];
  if (rank >= 0) return;
  rank = (int)number("RANK", 0);
  snprintf(path, sizeof path, "%s.%d", getenv("FAKE_TRACE"), rank);
  trace = fopen(path, "w");
  const char *s = getenv("FAKE_ORDERS");
  for (char *end; s && *s && count < ORDERS_MAX; count++) {
    falcon_job_order *o = &orders[count].order;
    o->id = strtoull(s, &end, 10);
    o->kind = (uint32_t)strtoul(end, &end, 10);
    o->epoch = strtoull(end, &end, 10);
    orders[count].at = strtol(end, &end, 10) + rank % 3;
    o->n = (uint32_t)strtoul(end, &end, 10);
    for (uint32_t i = 0; i < o->n; i++) o->values[i] = (int32_t)strtol(end, &end, 10);
    s = strchr(end, ';');
    s = s ? s + 1 : NULL;
  }
}

static void note(const char *what, long long a, long long b, long long c) {
  load();
  fprintf(trace, "%s %lld %lld %lld\n", what, a, b, c);
  fflush(trace);
}

void falcon_job_describe(int tp, int dp, int pp, int m) { note("describe", tp * 100 + dp * 10 + pp, m, 0); }
void falcon_job_begin_iteration(int64_t i) { note("begin_iteration", i, 0, 0); }
void falcon_job_begin_optimizer(int64_t i) { note("begin_optimizer", i, 0, 0); }
void falcon_job_end_optimizer(int64_t i) { note("end_optimizer", i, 0, 0); }
void falcon_job_place(uint64_t id, int64_t i, int r, const uint64_t step_ns[4], uint64_t bytes) {
  note(step_ns[2] && bytes ? "place" : "place without state", (long long)id, i, r);
}
void falcon_job_ack(uint64_t id, int64_t i, int32_t status) { note("ack", (long long)id, i, status); }

uint64_t falcon_job_poll(int64_t i) {
  uint64_t newest = 0;
  load();
  for (int k = 0; k < count; k++)
    if (i >= orders[k].at && orders[k].order.id > newest) newest = orders[k].order.id;
  return newest;
}

int falcon_job_fetch(uint64_t id, falcon_job_order *out) {
  load();
  if (rank == number("FAKE_FORGETFUL", -1)) return -1;
  for (int k = 0; k < count; k++)
    if (orders[k].order.id == id) {
      *out = orders[k].order;
      return 0;
    }
  return -1;
}
