/*
 * Programs that open NCCL themselves and ask dlsym for its functions (ctypes,
 * vLLM, XGBoost) pass by LD_PRELOAD, so dlsym is interposed as well, on x86-64
 * and arm64. Everything but the names of the table goes on by a jump, not a call:
 * libc's dlsym looks at its return address to know who asked (RTLD_NEXT).
 *
 * The caller gets our function only if ours will go on to the very function
 * that it would have got. Otherwise (a second NCCL in the process, another
 * tool between us) it gets the real one, and coverage records it.
 *
 * This file is always built without sanitizers: it runs before they are up.
 */
#include "hook.h"

#include <dlfcn.h>
#include <string.h>

typedef void *(*dlsym_fn)(void *, const char *);
void *falcon_real_dlsym __attribute__((visibility("hidden")));

/* dlvsym is not interposed, so it reaches libc's dlsym past our own. */
static dlsym_fn real_dlsym(void) {
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  void *p = __atomic_load_n(&falcon_real_dlsym, __ATOMIC_ACQUIRE);
  for (size_t i = 0; !p && i < sizeof versions / sizeof *versions; i++) p = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  __atomic_store_n(&falcon_real_dlsym, p, __ATOMIC_RELEASE);
  return (dlsym_fn)p;
}

void *falcon_symbol(void *handle, const char *name) {
  dlsym_fn f = real_dlsym();
  return f ? f(handle, name) : NULL;
}

#if defined(__x86_64__) || defined(__aarch64__)

static void *const own[FN_HOOKED];

typedef struct { void *symbol; uint64_t decided; /* 0: let libc answer */ } answer; /* in two registers */

/* dlerror is left as a success leaves it. */
static answer decided(void *symbol) {
  dlerror();
  return (answer){symbol, 1};
}

__attribute__((visibility("hidden"), used)) answer falcon_dlsym_pick(void *handle, const char *name, void *asker);
answer falcon_dlsym_pick(void *handle, const char *name, void *asker) {
  const answer pass = {NULL, 0};
  if (!name || strncmp(name, "nccl", 4) || handle == RTLD_NEXT) {
    falcon_symbol(RTLD_NEXT, "dlsym"); /* so that the jump below has its target */
    return pass;
  }
  int fn = falcon_fn_index(name);
  void *theirs = falcon_symbol(handle, name);
  if (fn < 0 || !theirs) return pass;
  if (falcon_is_mine(theirs)) { /* not to be found where no NCCL has it; the failing search leaves the right dlerror */
    falcon_binding *by = falcon_binding_of(asker, fn);
    return by && falcon_bound_fn(by, fn) ? pass : (answer){falcon_symbol(RTLD_NEXT, name), 1};
  }
  if (falcon_dlsym_leads(asker, fn, theirs)) return decided(own[fn]);
  falcon_cover(FALCON_COV_UNHOOKED);
  return pass;
}

#define X(name, ...) extern int name();
FALCON_CALLS(X) FALCON_OTHERS(X)
#undef X

static void *const own[FN_HOOKED] = {
#define X(name, ...) [FN_##name] = (void *)name,
  FALCON_CALLS(X) FALCON_OTHERS(X)
#undef X
};

#if defined(__x86_64__)
__asm__(
  ".text\n"
  ".globl dlsym\n"
  ".type dlsym, @function\n"
  "dlsym:\n"
  "  endbr64\n"
  "  movq (%rsp), %rdx\n"
  "  pushq %rdi\n"
  "  pushq %rsi\n"
  "  subq $8, %rsp\n"
  "  call falcon_dlsym_pick\n"
  "  addq $8, %rsp\n"
  "  popq %rsi\n"
  "  popq %rdi\n"
  "  testq %rdx, %rdx\n"
  "  jne 1f\n"
  "  jmp *falcon_real_dlsym(%rip)\n"
  "1: ret\n"
  ".size dlsym, .-dlsym\n");
#else
__asm__(
  ".text\n"
  ".globl dlsym\n"
  ".type dlsym, %function\n"
  "dlsym:\n"
  "  hint #34\n" /* bti c */
  "  stp x29, x30, [sp, #-32]!\n"
  "  mov x29, sp\n"
  "  stp x0, x1, [sp, #16]\n"
  "  mov x2, x30\n"
  "  bl falcon_dlsym_pick\n"
  "  mov x9, x0\n"
  "  mov x10, x1\n"
  "  ldp x0, x1, [sp, #16]\n"
  "  ldp x29, x30, [sp], #32\n"
  "  cbnz x10, 1f\n"
  "  adrp x16, falcon_real_dlsym\n"
  "  ldr x16, [x16, :lo12:falcon_real_dlsym]\n"
  "  br x16\n"
  "1: mov x0, x9\n"
  "  ret\n"
  ".size dlsym, .-dlsym\n");
#endif

#endif
