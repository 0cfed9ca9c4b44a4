/* Choice of the clock, and pairs of readings to convert between the two. */
#include "clock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define PAIR_TRIES 5

/* The kernel leaves the TSC for one of these when it found it unsteady. */
static bool kernel_distrusts_tsc(void) {
  char name[32] = "";
  int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, name, sizeof name - 1);
  close(fd);
  name[n > 0 ? n : 0] = 0;
  return !strncmp(name, "hpet", 4) || !strncmp(name, "acpi_pm", 7) || !strncmp(name, "jiffies", 7) || !strncmp(name, "refined", 7);
}

uint32_t falcon_clock_pick(void) {
  const char *want = getenv("FALCON_CLOCK");
  if (want && !strcmp(want, "mono")) return FALCON_CLOCK_MONO_NS;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  bool invariant = __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
  if (invariant && !kernel_distrusts_tsc()) return FALCON_CLOCK_TSC;
#else
  (void)kernel_distrusts_tsc;
#endif
  return FALCON_CLOCK_MONO_NS;
}

void falcon_clock_pair(uint64_t *ticks, uint64_t *mono_ns) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < PAIR_TRIES; i++) {
    uint64_t before = falcon_ticks(), now = falcon_mono_ns(), after = falcon_ticks();
    if (after - before >= best) continue;
    best = after - before;
    *ticks = before + best / 2;
    *mono_ns = now;
  }
}
