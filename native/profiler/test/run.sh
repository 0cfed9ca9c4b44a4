#!/bin/sh
# Runs the plug-in's tests: run.sh DIR PLUGIN HOOK [PRELOAD-FIRST]. Each case is a
# process of its own, with a directory of its own for the files. A case both_* runs
# under the hook too; one with v4 or v6 in its name is of that version. JOBS (4)
# cases run at a time: most of them wait. RUNNER: what runs programs of another machine;
# SKIP: the cases that it can't.
set -eu
case $1 in
one) # CASE, with what the call below exported
  case " ${SKIP:-} " in *" $2 "*) echo "skip t_events $2"; exit;; esac
  version=5 preload=$first
  case $2 in *v4*) version=4;; *v6*) version=6;; esac
  case $2 in both_*) preload="${first:+$first:}$hook";; esac
  shm=$(mktemp -d "$top/XXXXXX")
  out=$(timeout 120 env LD_LIBRARY_PATH="$dir" LD_PRELOAD="$preload" FALCON_SHM_DIR="$shm" FALCON_JOB=t RANK=2 WORLD_SIZE=8 TEST_DIR="$dir" TEST_HOOK="$hook" \
    NCCL_PROFILER_PLUGIN="$plugin" FALCON_LAB_PROFILER=$version ${RUNNER:-} "$dir/t_events" "$2" 2>&1) || bad="FAIL t_events $2"
  left=$(ls "$shm" | grep -v '\.ended$' || true)
  [ -z "$left" ] || bad="FAIL t_events $2: files left behind: $left"
  echo "${out:+$out
}${bad:-ok   t_events $2}" # in one write: cases end side by side
  [ -z "${bad:-}" ]
  exit;;
esac
dir=$(cd "$1" && pwd) plugin=$(readlink -f "$2") hook=$(readlink -f "$3") first=${4:-}
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
export dir plugin hook first top
LD_LIBRARY_PATH="$dir" ${RUNNER:-} "$dir/t_events" | xargs -P "${JOBS:-4}" -n 1 "$0" one
