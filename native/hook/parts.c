/* The hook's parts: bindings, profile windows, pauses, suspensions, tests, waiting. */
#include "parts.h"
#include "pause.h"
#include "suspend.h"
#include "wait.h"

#include "../profiler/profiler.h"

#include <sys/prctl.h>

#define SLACK_NS 1000000ul         /* the kernel may join our wake-ups with others */
#define SLACK_PAUSE_NS 50000ul     /* a pause is short, and every round counts */
#define LOOK_EVERY 20              /* beats between searches for an unhooked NCCL */

bool falcon_part_hooks(void) { return true; }

void falcon_part_load(void) { falcon_pause_load(); }

void falcon_part_created(void) { falcon_suspend_load(falcon_hook.control->generation_now); }

void falcon_part_started(void) {
  falcon_strip_preload();
  falcon_bound_publish();
}

void falcon_part_forked(void) {
  falcon_thread.prof_group = falcon_thread.passed_count = 0;
  falcon_pause_forked();
  falcon_suspend_forked();
  falcon_later_forked();
  falcon_events_forked();
}

void falcon_part_exiting(void) { falcon_wait_close(); }

void falcon_part_closing(void) { falcon_pause_close(); }

/* NCCL is in the process and yet no call came through the hook. One that is part
 * of another library is searched for ever more seldom. */
static void look_for_unhooked(uint32_t round) {
  if (round % LOOK_EVERY) return;
  uint32_t looks = round / LOOK_EVERY;
  bool open = !(atomic_load(&falcon_hook.coverage) & (FALCON_COV_INIT | FALCON_COV_MAPPED));
  if (open && (falcon_nccl_mapped() || (!(looks & (looks - 1)) && falcon_nccl_loaded()))) falcon_cover(FALCON_COV_MAPPED);
  falcon_bound_publish();
}

uint64_t falcon_part_tick(uint64_t now, uint32_t round) {
  static bool pausing = true;
  look_for_unhooked(round);
  bool busy = falcon_profile_tick(now), was = pausing;
  pausing = falcon_pause_tick(now);
  bool suspending = falcon_suspend_tick(now);
  falcon_probe_tick(now);
  falcon_wait_tick(pausing || was || suspending);
  if (pausing != was) prctl(PR_SET_TIMERSLACK, pausing ? SLACK_PAUSE_NS : SLACK_NS);
  return pausing ? FALCON_PAUSE_BEAT_NS : suspending ? FALCON_SUSPEND_BEAT_NS : busy ? FALCON_BEAT_PROFILE_NS : FALCON_BEAT_NS;
}
