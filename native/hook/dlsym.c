/*
 * Programs that open NCCL themselves and ask dlsym for its functions (ctypes,
 * vLLM, XGBoost) pass by LD_PRELOAD, so dlsym is stood before as well, on
 * x86-64. Everything but the names of the table goes on by a jump, not a call:
 * libc's dlsym looks at its return address to know who asked (RTLD_NEXT).
 *
 * The caller gets our function only if ours will go on to the very function
 * that it would have got. Otherwise (a second NCCL in the process, another
 * tool between us) it gets the real one, and coverage says so.
 *
 * This file is always built without sanitizers: it runs before they are up.
 */
#include "hook.h"

#include <dlfcn.h>
#include <string.h>

#if defined(__x86_64__)

static void *const own[FN_HOOKED];

/* NULL: let libc answer. */
__attribute__((visibility("hidden"), used)) void *falcon_dlsym_pick(void *handle, const char *name);
void *falcon_dlsym_pick(void *handle, const char *name) {
  if (!name || strncmp(name, "nccl", 4) || handle == RTLD_NEXT) {
    falcon_symbol(RTLD_NEXT, "dlsym"); /* so that the jump below has its target */
    return NULL;
  }
  int fn = falcon_fn_index(name);
  void *theirs = falcon_symbol(handle, name);
  if (fn < 0 || !theirs || falcon_is_mine(theirs)) return NULL;
  void *known = NULL;
  if (!atomic_compare_exchange_strong(&falcon_real[fn], &known, theirs) && known != theirs) {
    falcon_cover(FALCON_COV_UNHOOKED);
    return NULL;
  }
  return own[fn];
}

#define X(name, ...) extern int name();
FALCON_CALLS(X) FALCON_OTHERS(X)
#undef X

static void *const own[FN_HOOKED] = {
#define X(name, ...) [FN_##name] = (void *)name,
  FALCON_CALLS(X) FALCON_OTHERS(X)
#undef X
};

__asm__(
  ".text\n"
  ".globl dlsym\n"
  ".type dlsym, @function\n"
  "dlsym:\n"
  "  endbr64\n"
  "  pushq %rdi\n"
  "  pushq %rsi\n"
  "  subq $8, %rsp\n"
  "  call falcon_dlsym_pick\n"
  "  addq $8, %rsp\n"
  "  popq %rsi\n"
  "  popq %rdi\n"
  "  testq %rax, %rax\n"
  "  jne 1f\n"
  "  jmp *falcon_real_dlsym(%rip)\n"
  "1: ret\n"
  ".size dlsym, .-dlsym\n");

#endif
