// Compiled against the nccl.h of one version: does every function that the hook
// stands before take what the hook hands on, and do the structs lie where it reads
// them? matrix.py defines HAVE_ncclX for the functions that the header declares.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <nccl.h>

#define _Static_assert static_assert
#include "../api.h"
#include "../nccl_abi.h"

// Passed alike: pointers as pointers, integers and enums of one size, structs of one size by value.
template <class A, class B>
constexpr bool alike() {
  if (std::is_pointer<A>::value || std::is_pointer<B>::value) return std::is_pointer<A>::value && std::is_pointer<B>::value;
  if (std::is_class<A>::value || std::is_class<B>::value) return std::is_class<A>::value && std::is_class<B>::value && sizeof(A) == sizeof(B);
  return sizeof(A) == sizeof(B) && (std::is_integral<A>::value || std::is_enum<A>::value) && (std::is_integral<B>::value || std::is_enum<B>::value);
}

template <class Ours, class Theirs>
struct same : std::false_type {};
template <class R, class... A, class Q, class... B>
struct same<R(A...), Q(B...)> {
  template <class... T>
  struct list {};
  template <class X, class Y>
  struct all : std::false_type {};
  template <class X, class... Xs, class Y, class... Ys>
  struct all<list<X, Xs...>, list<Y, Ys...>> : std::integral_constant<bool, alike<X, Y>() && all<list<Xs...>, list<Ys...>>::value> {};
  template <class Z>
  struct all<list<>, Z> : std::is_same<Z, list<>> {};
  static constexpr bool value = sizeof...(A) == sizeof...(B) && alike<R, Q>() && all<list<A...>, list<B...>>::value;
};

#define CHECK(name, ...) static_assert(same<int __VA_ARGS__, decltype(name)>::value, #name " takes other arguments than the hook hands on");

// Both sides of the list: what api.h has of a recorded call, and of the others what
// is written out in comm.c, group.c and memory.c.
#include "abi_calls.h"

static_assert(sizeof(ncclUniqueId) == sizeof(nccl_unique_id), "ncclUniqueId");
static_assert(NCCL_SUCCESS == (int)ncclSuccess && NCCL_SYSTEM_ERROR == (int)ncclSystemError && NCCL_INVALID_ARGUMENT == (int)ncclInvalidArgument, "results");
static_assert(NCCL_INVALID_USAGE == (int)ncclInvalidUsage && NCCL_REMOTE_ERROR == (int)ncclRemoteError && NCCL_IN_PROGRESS == (int)ncclInProgress, "results");
#define AT(field) static_assert(offsetof(ncclConfig_t, field) == offsetof(nccl_config, field), "ncclConfig_t." #field)
AT(size);
AT(magic);
AT(version);
AT(blocking);
AT(cgaClusterSize);
AT(minCTAs);
AT(maxCTAs);
AT(netName);
AT(splitShare);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 0)
AT(trafficClass);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
AT(commName);
static_assert(sizeof(ncclConfig_t) >= sizeof(nccl_config), "commName is read where size says that it is there");
#else
static_assert(sizeof(ncclConfig_t) < sizeof(nccl_config), "commName is not read where it is not there");
#endif
static const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
static_assert(ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8, "types");
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
static_assert(ncclBfloat16 == 9 && ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11, "types");
#endif

int main() { return initial.magic == NCCL_CONFIG_MAGIC ? 0 : 1; }
