#!/bin/sh
# Runs the plug-in's tests: run.sh DIR PLUGIN HOOK [PRELOAD-FIRST]. Each case is a
# process of its own, with a directory of its own for the files. A case both_* runs
# under the hook too; one with v4 or v6 in its name is of that version.
set -eu
dir=$(cd "$1" && pwd) plugin=$(readlink -f "$2") hook=$(readlink -f "$3") first=${4:-}
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
bad=0
for c in $(LD_LIBRARY_PATH="$dir" "$dir/t_events"); do
  version=5 preload=$first
  case $c in *v4*) version=4;; *v6*) version=6;; esac
  case $c in both_*) preload="${first:+$first:}$hook";; esac
  shm=$(mktemp -d "$top/XXXXXX")
  if out=$(timeout 120 env LD_LIBRARY_PATH="$dir" LD_PRELOAD="$preload" FALCON_SHM_DIR="$shm" FALCON_JOB=t RANK=2 WORLD_SIZE=8 TEST_DIR="$dir" TEST_HOOK="$hook" \
    NCCL_PROFILER_PLUGIN="$plugin" FALCON_LAB_PROFILER=$version "$dir/t_events" "$c" 2>&1); then echo "ok   t_events $c"
  else echo "${out:+$out
}FAIL t_events $c"; bad=1; fi
  left=$(ls "$shm" | grep -v '\.ended$' || true)
  [ -z "$left" ] || { echo "FAIL t_events $c: files left behind: $left"; bad=1; }
done
exit $bad
