#!/bin/sh
# Runs the hook's tests: run.sh DIR LIB [PRELOAD-FIRST]. Each case is a process of
# its own, with the hook preloaded and a directory of its own for the files. JOBS
# (4) cases run at a time: most of them wait. LAB_LIB: the lab's stand-ins, which
# some tests run on. RUNNER: what runs programs of another machine; SKIP: the
# PROGRAM/CASEs that it can't.
set -eu
case $1 in
one) # PROGRAM CASE, with what the call below exported
  case " ${SKIP:-} " in *" $2/$3 "*) echo "skip $2 $3"; exit;; esac
  max=60000 lib=$dir mb=0 # the fakes, and nothing reserved for active tests
  case $2 in t_probe|t_world|t_recover) lib=$lab mb=64;; esac
  case $3 in
  revoke_*) lib=$dir/newer;; # an NCCL that can revoke
  esac
  case $3 in
  clamp|fuzz|revoke_fuzz) max=200;; # a longest hold that a test can wait for
  esac
  shm=$(mktemp -d "$top/XXXXXX")
  out=$(timeout 120 env FALCON_PAUSE_MAX_MS=$max LD_LIBRARY_PATH="$lib" LD_PRELOAD="${first:+$first:}$hook" FALCON_SHM_DIR="$shm" FALCON_JOB=t FALCON_TEST_MB=$mb \
    FALCON_DEVICE=n1.g0 FALCON_GENERATION=3 RANK=2 WORLD_SIZE=8 TEST_DIR="$dir" TEST_HOOK="$hook" ${RUNNER:-} "$dir/$2" "$3" 2>&1) || bad="FAIL $2 $3"
  # The end records of those whose agent, played or mad, has looked may stay.
  left=$(ls "$shm" | grep -v -e '\.crash' -e '\.ended$' || true)
  [ -z "$left" ] || bad="FAIL $2 $3: files left behind: $left"
  echo "${out:+$out
}${bad:-ok   $2 $3}" # in one write: cases end side by side
  [ -z "${bad:-}" ]
  exit;;
esac
dir=$(cd "$1" && pwd)
hook=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
first=${3:-}
lab=$(cd "$LAB_LIB" && pwd)
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export dir hook first lab top
for p in t_linked t_open t_profile t_pause t_hold t_wait t_end t_guard t_folder t_suspend t_park t_probe t_world t_recover; do
  [ -x "$dir/$p" ] || continue
  lib=$dir
  case $p in t_probe|t_world|t_recover) lib=$lab;; esac
  env LD_LIBRARY_PATH="$lib" ${RUNNER:-} "$dir/$p" | tr -s ' ' '\n' | sed "s/^/$p /"
done | xargs -P "${JOBS:-4}" -n 2 "$0" one
