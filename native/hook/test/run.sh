#!/bin/sh
# Runs the hook's tests: run.sh DIR LIB [PRELOAD-FIRST]. Each case is a process
# of its own, with the hook preloaded and a directory of its own for the files.
# LAB_LIB: the lab's stand-ins, which some tests run on.
set -eu
dir=$(cd "$1" && pwd)
hook=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
first=${3:-}
lab=$(cd "$LAB_LIB" && pwd)
shm=$(mktemp -d)
trap 'rm -rf "$shm"' EXIT
fail=0
run() { # run PROGRAM CASE
  max=60000
  case "$2" in clamp|fuzz|revoke_fuzz) max=200;; esac # a longest hold that a test can wait for
  if env FALCON_PAUSE_MAX_MS=$max LD_LIBRARY_PATH="$lib" LD_PRELOAD="${first:+$first:}$hook" FALCON_SHM_DIR="$shm" FALCON_JOB=t FALCON_TEST_MB=$mb \
    FALCON_DEVICE=n1.g0 FALCON_GENERATION=3 RANK=2 WORLD_SIZE=8 TEST_DIR="$dir" TEST_HOOK="$hook" timeout 120 "$dir/$1" "$2"; then
    echo "ok   $1 $2"
  else
    echo "FAIL $1 $2"; fail=1
  fi
}
for p in t_linked t_open t_profile t_pause t_hold t_wait t_end t_suspend t_park t_probe t_world t_recover; do
  [ -x "$dir/$p" ] || continue
  lib=$dir mb=0 # the fakes, and nothing reserved for active tests
  case $p in t_probe|t_world|t_recover) lib=$lab mb=64;; esac
  usual=$lib
  for c in $(LD_LIBRARY_PATH="$lib" "$dir/$p"); do
    case "$c" in revoke_*) lib=$dir/newer;; *) lib=$usual;; esac # an NCCL that can revoke
    run $p "$c"
  done
done
# The end records of those whose agent, played or mad, has looked may stay.
left=$(ls "$shm" | grep -v -e '\.crash' -e '\.ended$' || true)
if [ -n "$left" ]; then echo "FAIL files left behind: $left"; fail=1; fi
exit $fail
