#!/usr/bin/env bash
# Writes docs/results/benchmarks.md: every figure with the command that gave it.
# Usage: docs/bench.sh [PAIRS]   (pairs of lab runs for the hook's cost; default 5)
# BENCH_ONLY=REGEX measures the sections whose title matches and keeps the others.
set -euo pipefail
cd "$(dirname "$0")/.."
pairs=${1:-5}
only=${BENCH_ONLY:-}
stamp="$(date -u +%F), $(git describe --always --dirty 2>/dev/null || echo none), $(nproc) cores of $(grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'), $(free -g | awk '/^Mem:/{print $2}') GiB, Linux $(uname -r), $(go version | cut -d' ' -f3)"
out=docs/results/benchmarks.md
tmp=$(mktemp)
sources=$(mktemp)
trap 'rm -f "$tmp" "$sources"' EXIT
export CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations"
# What each part is about, as it is now: a change while it is measured makes the part older.
go test . -count=1 -run TestTablesSayTheirAge -v >"$sources" || true # the page's age lines may be wrong now

# part NAME TITLE COMMAND... : the command's own lines, as they came, between the marks
# of that row of docs/tables.txt.
part() {
  local name=bench-$1 title=$2 hash
  shift 2
  if [[ -n $only && ! $title =~ $only ]]; then
    kept "$name"
    return
  fi
  hash=$(awk -v part="$name" '$2 == "results/benchmarks.md" && $3 == part { print $5 }' "$sources")
  if [ -z "$hash" ]; then
    echo "bench: docs/tables.txt has no row results/benchmarks.md $name" >&2
    exit 1
  fi
  echo "bench: $title" >&2
  printf '\n<!-- %s: written by make bench -->\n## %s\n\n`%s` (%s). Sources %s\n\n```\n' "$name" "$title" "$*" "$stamp" "$hash" >>"$tmp"
  "$@" 2>&1 | grep -vE '^(=== RUN|goos|goarch|pkg:|PASS|make|--- PASS|    --- PASS|testing:|ok )|no test files' >>"$tmp"
  printf '```\n<!-- end of %s -->\n' "$name" >>"$tmp"
}
# kept NAME: the part as it stands; .ci/tables writes the line of its age.
kept() {
  local body=
  [ -f "$out" ] && body=$(sed -n "/^<!-- $1: /,/^<!-- end of $1 -->/p" "$out")
  [ -z "$body" ] || printf '\n%s\n' "$body" >>"$tmp"
}
gobench() { # NAME TITLE PACKAGE PATTERN
  part "$1" "$2" go test -run '^$' -bench "$4" -benchmem "$3"
}

{
  echo "# Benchmarks"
  echo
  echo "Written by \`make bench\`; nothing here is typed by hand. Each section says when, of which commit and on which machine it was measured, and a hash of the code that it is about; above it stands whether that code has changed since."
  echo
  echo "The machines are shared and noisy: compare figures of one run, not of two. GPUs and links are emulated; the hook's cost is measured on the real call path of the emulated NCCL."
} >"$tmp"

part hook-call "Hook: nanoseconds added per NCCL call" make -s -C native/hook bench
part profiler-call "Profiler plug-in: nanoseconds added per NCCL call" make -s -C native/profiler bench
part hook-pairs "Hook: on against off, pairs of whole lab runs" go test ./cmd/falcon -count=1 -timeout 60m -run HookPairs -lab-pairs "$pairs" -v
part hook-alone "Hook: alone, without agents and engine on its cores" go test ./cmd/falcon -count=1 -timeout 60m -run HookAlone -lab-pairs "$pairs" -v
part ring-pauses "Validation pause: rings of 4, 8 and 16 ranks" go test ./cmd/falcon -count=1 -timeout 30m -run RingPauses -lab-rings 10 -v
gobench ring-drain "Ring drain" ./agent/... 'Drain'
gobench bocd "BOCD" ./detect/bocd '.'
gobench period "Period inference" ./detect/period '.'
part estimates "Iteration time from the calls alone, against the trainer's own clock" make -s estimates
gobench detector "Detector: one iteration of all ranks" ./detect '.'
gobench s2 "S2 solver" ./mitigate/microbatch '.'
# apt-get puts SciPy beside the system's own Python.
part s2-highs "S2 solver beside SciPy's HiGHS" "$(command -v /usr/bin/python3 || command -v python3)" docs/bench_s2.py bin/falcon
gobench 1f1b "1F1B simulation" ./mitigate/cost '.'
gobench s3 "S3 search, up to 1,024 nodes" ./mitigate/topology '.'
part store "Rendezvous store: all clients of a job released, beside the installed PyTorch's own server" .ci/python run go test ./backend/tcpstore -count=1 -timeout 30m -run TestRelease -store-scale -v
gobench rank-table "Rank table of 18,000 devices" ./recovery/ranktable '.'
gobench engine "Engine and journal" ./backend/... '.'
part journal-bytes "Journal: bytes of a recovery, whole and by what changes" go test ./backend/engine -count=1 -run BytesOfARecovery -v
part journal-start "Journal: a start and a snapshot at 100,000 ranks" go test ./backend/engine -run '^$' -bench 100000Ranks -benchtime 5x
part journal-append "Journal: an append, and the head file's part of it" go test ./backend/journal -run '^$' -bench 'Append|HeadFile' -benchtime 500x
part journal-ends "Journal: ended at every point of a write, and power lost in every stage of a commit" go test ./backend/journal -count=1 -run 'Killed|PowerLoss' -journal-kills 1000 -journal-images 1000 -v
gobench console "Console" ./tui/... '.'
part pull-bytes "Console: bytes of a pull, columns beside messages" go test ./backend/api/columns -count=1 -run BytesOfAPull -v
gobench columns "Console: columns of 100,000 ranks" ./backend/api/columns '.'
# Bytes are counted exactly, by a clock of the test's own; the budgets are asserted there.
part console-bytes "Console: bytes written to a terminal" go test ./tui -count=1 -timeout 20m -run 'NothingIsWritten|IdleBytes|BytesOf|AKeyCosts' -v
part console-memory "Console: memory at 100,000 ranks" go test ./tui -count=1 -timeout 20m -run MemoryOfASession -v
# What make eval, make rivals, make table7 and make scale wrote stays: they take minutes of their own.
if [ -f "$out" ]; then
  for other in eval rivals table7 scale; do
    kept "$other"
  done
fi
cat "$tmp" >"$out" # which keeps its mode
.ci/tables
echo "wrote $out" >&2
