#!/usr/bin/env python3
"""The hook and the profiler plug-in beside every NCCL: make nccl-matrix.

For each NCCL that fetch.py names: symbols, the header's layouts and prototypes,
and a process without a GPU that is bound to it in each of four ways, with and
without the hook; and what the library's own code for profiler plug-ins makes of ours
(inside.c). A finished version is not tried again while neither it nor the
sources of hook and plug-in changed. The table goes into docs/compatibility.md.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
HOOK = HERE.parent
PAGE = HOOK.parent.parent / "docs" / "compatibility.md"
BEGIN, END = "<!-- nccl-matrix: written by make nccl-matrix -->", "<!-- end of nccl-matrix -->"
WITHIN_S = 300

# Written out in comm.c, group.c and memory.c; what api.h lists with parameters comes from there.
OTHERS = {
    "ncclGroupStart": "()",
    "ncclGroupEnd": "()",
    "ncclGroupSimulateEnd": "(void *)",
    "ncclCommInitRank": "(void **, int, nccl_unique_id, int)",
    "ncclCommInitRankConfig": "(void **, int, nccl_unique_id, int, nccl_config *)",
    "ncclCommInitAll": "(void **, int, const int *)",
    "ncclCommInitRankScalable": "(void **, int, int, int, nccl_unique_id *, nccl_config *)",
    "ncclCommSplit": "(void *, int, int, void **, nccl_config *)",
    "ncclCommShrink": "(void *, int *, int, void **, nccl_config *, int)",
    "ncclCommGrow": "(void *, int, const nccl_unique_id *, int, void **, nccl_config *)",
    "ncclCommFinalize": "(void *)",
    "ncclCommDestroy": "(void *)",
    "ncclCommAbort": "(void *)",
    "ncclCommRevoke": "(void *, int)",
    "ncclCommGetAsyncError": "(void *, int *)",
    "ncclCommRegister": "(void *, void *, size_t, void **)",
    "ncclCommDeregister": "(void *, void *)",
    "ncclCommWindowRegister": "(void *, void *, size_t, void **, int)",
    "ncclCommWindowDeregister": "(void *, void *)",
    "ncclDevCommCreate": "(void *, const void *, void *)",
    "ncclDevCommDestroy": "(void *, const void *)",
    "ncclCommCount": "(void *, int *)",
    "ncclCommUserRank": "(void *, int *)",
    "ncclCommCuDevice": "(void *, int *)",
    "ncclRedOpCreatePreMulSum": "(int *, void *, int, int, void *)",
    "ncclRedOpDestroy": "(int, void *)",
    "ncclCommGetUniqueId": "(void *, void *)",
    "ncclCommMemStats": "(void *, int, uint64_t *)",
    "ncclCommSuspend": "(void *, int)",
    "ncclCommResume": "(void *)",
    "ncclWinGetUserPtr": "(void *, void *, void **)",
    "ncclGetUniqueId": "(nccl_unique_id *)",
    "ncclGetVersion": "(int *)",
}
# In no header that C++ without CUDA can read: declared beside the device API.
DEVICE_API = {"ncclDevCommCreate", "ncclDevCommDestroy"}
# In every NCCL from 2.18 on.
ALWAYS = {
    "ncclAllReduce", "ncclReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast", "ncclBcast", "ncclSend", "ncclRecv",
    "ncclGroupStart", "ncclGroupEnd", "ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitAll", "ncclCommSplit", "ncclCommFinalize",
    "ncclCommDestroy", "ncclCommAbort", "ncclCommGetAsyncError", "ncclCommCount", "ncclCommUserRank", "ncclCommCuDevice",
    "ncclGetUniqueId", "ncclGetVersion",
}  # fmt: skip
# How the hook must report to be bound (enum falcon_bound); "-": no call came through it.
WAYS = {"needed": "1", "dlsym": "3", "deepbind": "-", "two": "2"}

# Functions of NCCL that inside.c calls, as the library's symbol table has them.
INSIDE = {
    "PluginInit": "_Z22ncclProfilerPluginInitP8ncclComm",
    "PluginFinalize": "_Z26ncclProfilerPluginFinalizeP8ncclComm",
    "EventMask": "ncclProfilerEventMask",
    "StartCollApi": "_Z29ncclProfilerStartCollApiEventP8ncclInfob",
    "StopCollApi": "_Z28ncclProfilerStopCollApiEventv",
    "StartP2pApi": "_Z28ncclProfilerStartP2pApiEventP8ncclInfob",
    "StopP2pApi": "_Z27ncclProfilerStopP2pApiEventv",
    "StartGroupApi": "_Z30ncclProfilerStartGroupApiEventP8ncclInfob",
    "RecordGroupApi": "_Z36ncclProfilerRecordGroupApiEventState24ncclProfilerEventState_t",
}
# What becomes of an ncclAllReduce, and of one with an ncclSend in a group: operation, count, type, stream, flags.
RECORDS = "1:256:7:10:0 11:0:0:0:0 1:256:7:10:1 9:256:7:10:1 12:0:0:0:0"


def fail(what):
    raise SystemExit(f"nccl-matrix: {what}")


def calls():
    """The functions of api.h with their parameters, and all others."""
    text = (HOOK / "api.h").read_text()
    recorded = dict(re.findall(r"X\((nccl\w+), (P_\w+),", text))
    named = set(re.findall(r"X\((nccl\w+)\)", text))
    if named != set(OTHERS):
        fail(f"matrix.py and api.h differ in {sorted(named ^ set(OTHERS))}")
    return {**recorded, **OTHERS}


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines() if re.search(r" [TWi] nccl[A-Z]", line)}


def strangers(names, known):
    """Functions that may move data and that the hook does not know: what exports.c reports."""
    listed = re.search(r"harmless\[\] = \{(.*?)\};", (HOOK / "exports.c").read_text(), re.S).group(1)
    harmless = tuple(re.findall(r'"(\w+)"', listed))
    return sorted(n for n in names if n not in known and not n.startswith(harmless))


def check_symbols(where, known):
    names = exported(where / "libnccl.so.2")
    header = (where / "nccl.h").read_text()
    declared = {n for n in known if re.search(rf"\b{n}\s*\(", header)} | (DEVICE_API & names)
    if missing := sorted((ALWAYS | declared) - names):
        fail(f"{where.name}: the library lacks {missing}")
    if strange := strangers(names, known):
        fail(f"{where.name}: the hook does not know {strange}")
    return declared, sorted(set(known) - names)


def check_layout(where, known, declared, tmp):
    lines = [f"CHECK({n}, {known[n]})" for n in sorted(declared - DEVICE_API)]
    (tmp / "abi_calls.h").write_text("\n".join(lines) + "\n")
    cmd = ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-I", tmp, "-I", HERE / "include", "-I", where, HERE / "abi.cc"]
    run = subprocess.run(cmd, capture_output=True, text=True, check=False)
    if run.returncode:
        fail(f"{where.name}: layout or prototypes differ\n{run.stderr}")
    return len(lines)


def build(top):
    out = top / "build"
    out.mkdir(parents=True, exist_ok=True)
    flags = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-I", HOOK.parent / "include"]
    shared = [*flags, "-fPIC", "-shared"]
    stub = out / "stub"
    stub.mkdir(exist_ok=True)
    for cmd in (
        [*shared, "-Wl,-soname,libnccl.so.2", HOOK / "test" / "fake_nccl.c", "-o", stub / "libnccl.so.2"],
        [*shared, HERE / "user.c", stub / "libnccl.so.2", "-o", out / "libuser.so"],
        [*shared, "-DOWN", HERE / "user.c", "-o", out / "libown.so"],
        [*flags, HERE / "probe.c", "-o", out / "probe", "-ldl"],
        [*flags, HERE / "inside.c", "-o", out / "inside", "-ldl"],
    ):
        subprocess.run(cmd, check=True)
    return out


def probe(where, way, built, hook):
    """What NCCL answered, and how the hook was bound."""
    with tempfile.TemporaryDirectory() as shm:
        env = {
            "PATH": os.environ["PATH"], "LD_LIBRARY_PATH": f"{where}:{built}", "NCCL_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "",
            "FALCON_SHM_DIR": shm, "FALCON_JOB": "matrix", "RANK": "0", "WORLD_SIZE": "1",
        }  # fmt: skip
        if hook:
            env["LD_PRELOAD"] = str(hook)
        run = subprocess.run([built / "probe", way], env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    if run.returncode:
        fail(f"{where.name}, {way}{' with the hook' if hook else ''}: ended with {run.returncode}: {run.stdout}{run.stderr}")
    return run.stdout.strip(), run.stderr.strip().splitlines()[-1]


def check_ways(where, built, hook):
    for way, bound in WAYS.items():
        without, _ = probe(where, way, built, None)
        with_hook, how = probe(where, way, built, hook)
        if without != with_hook:
            fail(f"{where.name}, {way}: without the hook {without}, with it {with_hook}")
        if how != bound:
            fail(f"{where.name}, {way}: the hook is bound as {how}, not as {bound}")
    real = re.findall(r"version 0 (\d+), id 0 set, init (\d+) (\w+)", without)
    if not real or real[-1][1] == "0" or real[-1][2] != "null":
        fail(f"{where.name}: no clean failure without a GPU: {without}")
    return {"version": int(real[-1][0]), "init": int(real[-1][1])}


def offsets(library):
    out = subprocess.run(["nm", library], capture_output=True, text=True, check=False).stdout
    table = {line.split()[2]: line.split()[0] for line in out.splitlines() if len(line.split()) == 3}
    return [f"{name}={table[symbol]}" for name, symbol in INSIDE.items() if symbol in table]


def check_plugin(where, built, plugin, version):
    """The version of the profiler interface by which this NCCL uses the plug-in, 0 for none."""
    library = where / "libnccl.so.2"
    known = [int(v) for v in set(re.findall(rb"ncclProfiler_v(\d+)", library.read_bytes()))]
    inside = offsets(library)
    if not any(o.startswith("PluginInit=") for o in inside):
        if known:
            fail(f"{where.name}: it has the profiler interface, and no symbol table")
        return None
    takes = max([v for v in known if v in (4, 5, 6)], default=0)
    with tempfile.TemporaryDirectory() as shm:
        env = {
            "PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "", "NCCL_PROFILER_PLUGIN": str(plugin), "FALCON_SHM_DIR": shm, "FALCON_JOB": "matrix",
        }  # fmt: skip
        cmd = [built / "inside", library, "calls" if takes > 4 else "init", *inside]
        run = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    want = "no file"
    if takes:
        mask, records = ("6", "") if takes == 4 else ("700", " " + RECORDS)
        want = f"mask {mask}, version {version}, bound 5, open;{records}; closed"
    if run.returncode or run.stdout.strip() != want:
        fail(f"{where.name}: the plug-in by version {takes}: ended with {run.returncode}: {run.stdout}{run.stderr}, not {want}")
    return takes


def fingerprint(where):
    h = hashlib.sha256()
    for f in [*sorted(HOOK.glob("*.[ch]")), *sorted((HOOK.parent / "profiler").glob("*.[ch]")), *sorted(HERE.glob("*.*")), HOOK.parent / "include" / "falcon_shm.h", where / "nccl.h"]:
        h.update(f.read_bytes())
    return h.hexdigest()


def check(top, requirement, built, hook):
    run = subprocess.run([sys.executable, HERE / "fetch.py", top / "wheels", requirement], capture_output=True, text=True, check=False)
    if run.returncode:
        fail(f"{requirement} was not fetched; run again to go on from here\n{run.stderr}")
    where = pathlib.Path(run.stdout.strip()).resolve()
    kept = top / "results" / f"{where.name}.json"
    if kept.exists() and (old := json.loads(kept.read_text()))["of"] == fingerprint(where):
        return old
    known = calls()
    with tempfile.TemporaryDirectory() as tmp:
        declared, newer = check_symbols(where, known)
        result = {"of": fingerprint(where), "package": requirement, "absent": newer}
        result["checked"] = check_layout(where, known, declared, pathlib.Path(tmp))
    result.update(check_ways(where, built, hook))
    result["plugin"] = check_plugin(where, built, hook.with_name("libnccl-profiler-falcon.so"), result["version"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(result))
    return result


def row(r):
    name, version = r["package"].split("==")
    absent = f"{len(r['absent'])} newer ones absent" if r["absent"] else "all there"
    plugin = {None: "–", 0: "run: not used"}.get(r["plugin"], f"run: version {r['plugin']}")
    return f"| {version} ({name[-4:]}) | run: {absent} | run: {r['checked']} | run | run | run: passes by | run | run: {r['version']} | run | run: error {r['init']} | {plugin} |"


def write_page(results):
    head = [
        "| NCCL | Functions | Prototypes and layouts | Linked | `dlsym` | `RTLD_DEEPBIND` | Two in one process | `ncclGetVersion` | `ncclGetUniqueId` | Init without a GPU | Profiler plug-in |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text("\n".join([before + BEGIN, "", *head, *(row(r) for r in results), "", END]) + after)


def main():
    top, hook = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    top.mkdir(parents=True, exist_ok=True)
    run = subprocess.run([sys.executable, HERE / "fetch.py", top / "wheels"], capture_output=True, text=True, check=False)
    wanted = sys.argv[3:] or run.stdout.split()
    if not wanted:
        print("nccl-matrix: skipped: PyPI does not answer")
        return
    built, results = build(top), []
    for requirement in wanted:
        results.append(check(top, requirement, built, hook))
        print(f"{requirement}: fine", flush=True)
    if not sys.argv[3:]:
        write_page(results)


if __name__ == "__main__":
    main()
