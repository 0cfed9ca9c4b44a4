#!/usr/bin/env bash
# Writes docs/benchmarks.md: every figure with the command that gave it.
# Usage: docs/bench.sh [PAIRS]   (pairs of lab runs for the hook's cost; default 5)
# BENCH_ONLY=REGEX measures the sections whose title matches and keeps the others.
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-5}
only=${BENCH_ONLY:-}
stamp="$(date -u +%F), $(git describe --always --dirty 2>/dev/null || echo none)"
out=docs/benchmarks.md
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
export CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations"

# section TITLE COMMAND... : the command's own lines, as they came.
section() {
  local title=$1; shift
  if [[ -n $only && ! $title =~ $only ]]; then
    kept "$title"
    return
  fi
  echo "bench: $title" >&2
  printf '\n## %s\n\n`%s` (%s)\n\n```\n' "$title" "$*" "$stamp" >>"$tmp"
  "$@" 2>&1 | grep -vE '^(=== RUN|goos|goarch|pkg:|PASS|make|--- PASS|    --- PASS|testing:|ok )|no test files' >>"$tmp"
  printf '```\n' >>"$tmp"
}
# kept TITLE: the section as it stands.
kept() {
  local body=
  [ -f "$out" ] && body=$(awk -v title="## $1" '/^(## |<!-- )/ {on = $0 == title} on' "$out")
  [ -z "$body" ] || printf '\n%s\n' "$body" >>"$tmp"
}
gobench() { # TITLE PACKAGE PATTERN
  section "$1" go test -run '^$' -bench "$3" -benchmem "$2"
}

{
  echo "# Benchmarks"
  echo
  echo "Written by \`make bench\`; nothing here is typed by hand. Machine: $(nproc) cores of $(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'), $(free -g | awk '/^Mem:/{print $2}') GiB, Linux $(uname -r), $(go version | cut -d' ' -f3), $(gcc -dumpfullversion | sed 's/^/gcc /'). Each section says when and of which commit it was measured."
  echo
  echo "The machine is shared and noisy: compare figures of one run, not of two. GPUs and links are emulated; the hook's cost is measured on the real call path of the emulated NCCL."
} >"$tmp"

section "Hook: nanoseconds added per NCCL call" make -s -C native/hook bench
section "Profiler plug-in: nanoseconds added per NCCL call" make -s -C native/profiler bench
section "Hook: on against off, pairs of whole lab runs" go test ./cmd/falcon -count=1 -timeout 60m -run HookPairs -lab-pairs "$pairs" -v
section "Hook: alone, without agents and engine on its cores" go test ./cmd/falcon -count=1 -timeout 60m -run HookAlone -lab-pairs "$pairs" -v
section "Validation pause: rings of 4, 8 and 16 ranks" go test ./cmd/falcon -count=1 -timeout 30m -run RingPauses -lab-rings 10 -v
gobench "Ring drain" ./agent/... 'Drain'
gobench "BOCD" ./detect/bocd '.'
gobench "Period inference" ./detect/period '.'
section "Iteration time from the calls alone, against the trainer's own clock" make -s estimates
gobench "Detector: one iteration of all ranks" ./detect '.'
gobench "S2 solver" ./mitigate/microbatch '.'
# apt-get puts SciPy beside the system's own Python.
section "S2 solver beside SciPy's HiGHS" "$(command -v /usr/bin/python3 || command -v python3)" docs/bench_s2.py bin/falcon
gobench "1F1B simulation" ./mitigate/cost '.'
gobench "S3 search, up to 1,024 nodes" ./mitigate/topology '.'
section "Rendezvous store: all clients of a job released, beside the installed PyTorch's own server" .ci/python run go test ./backend/tcpstore -count=1 -timeout 30m -run TestRelease -store-scale -v
gobench "Rank table of 18,000 devices" ./recovery/ranktable '.'
gobench "Engine and journal" ./backend/... '.'
section "Journal: bytes of a recovery, whole and by what changes" go test ./backend/engine -count=1 -run BytesOfARecovery -v
section "Journal: a start and a snapshot at 100,000 ranks" go test ./backend/engine -run '^$' -bench 100000Ranks -benchtime 5x
section "Journal: an append, and the head file's part of it" go test ./backend/journal -run '^$' -bench 'Append|HeadFile' -benchtime 500x
section "Journal: ended at every point of a write, and power lost in every stage of a commit" go test ./backend/journal -count=1 -run 'Killed|PowerLoss' -journal-kills 1000 -journal-images 1000 -v
gobench "Console" ./tui/... '.'
section "Console: bytes of a pull, columns beside messages" go test ./backend/api/columns -count=1 -run BytesOfAPull -v
gobench "Console: columns of 100,000 ranks" ./backend/api/columns '.'
# Bytes are counted exactly, by a clock of the test's own; the budgets are asserted there.
section "Console: bytes written to a terminal" go test ./tui -count=1 -timeout 20m -run 'NothingIsWritten|IdleBytes|BytesOf|AKeyCosts' -v
section "Console: memory at 100,000 ranks" go test ./tui -count=1 -timeout 20m -run MemoryOfASession -v
# What make eval, make rivals, make table7 and make scale wrote stays: they take minutes of their own.
if [ -f "$out" ]; then
  for part in eval rivals table7 scale; do
    printf '\n' >>"$tmp"
    sed -n "/^<!-- $part: /,/^<!-- end of $part -->/p" "$out" >>"$tmp"
  done
fi
mv "$tmp" "$out"
trap - EXIT
echo "wrote $out" >&2
