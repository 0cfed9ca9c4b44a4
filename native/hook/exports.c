/*
 * Does this NCCL have entry points that the hook does not know? Then calls of
 * them pass by unseen, and coverage records it for whoever reads the records.
 *
 * The symbol table of the library that holds the real functions is read once,
 * on the thread that just made its first communicator with it: so it is mapped,
 * and stays so meanwhile.
 */
#include "hook.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#define SYMBOLS_MAX 1000000u

/* What moves no data between ranks: by the begin of its name. NCCL 2.18 to 2.32. */
static const char *const harmless[] = {
  "ncclGet", "ncclSet", "ncclMem", "ncclRedOp", "ncclReset", "ncclParam", "ncclDebug", "ncclTeam", "ncclDev", "ncclLsa", "ncclLLA2A", "ncclGin", "ncclWin",
  "ncclCommGet", "ncclCommQuery", "ncclCommCount", "ncclCommCuDevice", "ncclCommUserRank", "ncclCommRegister", "ncclCommDeregister",
  "ncclCommWindow", "ncclCommMem", "ncclCommDump", "ncclCommSuspend", "ncclCommResume", "ncclProfiler", "ncclRas",
};

typedef struct { const char *strings; const ElfW(Sym) *symbols; uint32_t count; } table;

static bool stranger(const char *name) {
  if (strncmp(name, "nccl", 4) || name[4] < 'A' || name[4] > 'Z' || falcon_fn_index(name) >= 0) return false;
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (!strncmp(name, harmless[i], strlen(harmless[i]))) return false;
  return true;
}

/* A GNU hash table does not hold the number of symbols: the last one is at
 * the end of the chain that begins last. */
static uint32_t gnu_count(const uint32_t *hash) {
  uint32_t buckets = hash[0], first = hash[1], bloom = hash[2], last = 0;
  const uint32_t *bucket = hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; i++) last = bucket[i] > last ? bucket[i] : last;
  if (last < first) return 0;
  while (last - first < SYMBOLS_MAX && !(chain[last - first] & 1)) last++;
  return last + 1;
}

/* libc has made the pointers of a loaded library's dynamic section absolute;
 * one that still is an offset lies below the library. */
static const void *at(const struct link_map *l, ElfW(Addr) p) { return (const void *)(p < l->l_addr ? p + l->l_addr : p); }

static table table_of(const struct link_map *l) {
  table t = {0};
  for (const ElfW(Dyn) *d = l->l_ld; d && d->d_tag != DT_NULL; d++) {
    if (d->d_tag == DT_STRTAB) t.strings = at(l, d->d_un.d_ptr);
    if (d->d_tag == DT_SYMTAB) t.symbols = at(l, d->d_un.d_ptr);
    if (d->d_tag == DT_HASH && !t.count) t.count = ((const uint32_t *)at(l, d->d_un.d_ptr))[1];
    if (d->d_tag == DT_GNU_HASH) t.count = gnu_count(at(l, d->d_un.d_ptr));
  }
  if (!t.strings || !t.symbols || t.count > SYMBOLS_MAX) t.count = 0;
  return t;
}

FALCON_COLD void falcon_exports_look(void *real) {
  static _Atomic bool looked;
  Dl_info info;
  void *map = NULL;
  if (!real || atomic_exchange(&looked, true) || !dladdr1(real, &info, &map, RTLD_DL_LINKMAP) || !map) return;
  table t = table_of(map);
  for (uint32_t i = 1; i < t.count; i++) {
    const ElfW(Sym) *s = &t.symbols[i];
    if (s->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s->st_info) != STT_FUNC || !stranger(t.strings + s->st_name)) continue;
    falcon_cover(FALCON_COV_UNKNOWN);
    return;
  }
}
