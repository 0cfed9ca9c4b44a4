#!/usr/bin/env python3
"""Fetches one NCCL per minor version from PyPI: fetch.py DIR [PACKAGE==VERSION ...].

Without versions it prints those to be had, oldest first: the newest patch of each
minor of nvidia-nccl-cu12 from 2.18 on, and the newest nvidia-nccl-cu13. With
versions it leaves DIR/PACKAGE-VERSION/libnccl.so.2 and nccl.h of each and deletes
the wheel (150 to 300 MB) at once. What is there already is not fetched again.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

FIRST = (2, 18)
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "2", "--timeout", "20"]
WANTED = {"nvidia/nccl/lib/libnccl.so.2": "libnccl.so.2", "nvidia/nccl/include/nccl.h": "nccl.h"}


def versions(package):
    """Versions of a package on the index, [] where it can't be asked."""
    run = subprocess.run([*PIP, "index", "versions", package], capture_output=True, text=True, check=False)
    found = re.search(r"^Available versions: (.*)$", run.stdout, re.M)
    return found.group(1).split(", ") if found else []


def key(version):
    return tuple(int(n) for n in re.findall(r"\d+", version))


def newest_per_minor(package):
    newest = {}
    for v in sorted(versions(package), key=key):
        if key(v)[:2] >= FIRST:
            newest[key(v)[:2]] = v
    return [newest[minor] for minor in sorted(newest)]


def plan():
    twelve, thirteen = newest_per_minor("nvidia-nccl-cu12"), newest_per_minor("nvidia-nccl-cu13")
    return [f"nvidia-nccl-cu12=={v}" for v in twelve] + [f"nvidia-nccl-cu13=={v}" for v in thirteen[-1:]]


def extract(wheel, into):
    """All or nothing: a folder that is there is whole."""
    into.with_name(into.name + ".part").mkdir(parents=True)
    with zipfile.ZipFile(wheel) as z:
        for inside in z.namelist():
            if inside in WANTED or "/include/nccl_" in inside or "/include/nccl/" in inside:
                name = WANTED.get(inside) or inside.split("/include/", 1)[1]
                to = into.with_name(into.name + ".part") / name
                to.parent.mkdir(parents=True, exist_ok=True)
                with z.open(inside) as src, open(to, "wb") as dst:
                    shutil.copyfileobj(src, dst)
    into.with_name(into.name + ".part").rename(into)


def fetch(top, requirement):
    into = top / requirement.replace("==", "-").replace("post", "p")
    if into.is_dir():
        return into
    shutil.rmtree(into.with_name(into.name + ".part"), ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=top) as tmp:
        cmd = [*PIP, "download", "-q", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "-d", tmp, requirement]
        subprocess.run(cmd, check=True)
        extract(next(pathlib.Path(tmp).glob("*.whl")), into)
    return into


def main():
    if len(sys.argv) == 2:
        print("\n".join(plan()))
        return
    top = pathlib.Path(sys.argv[1])
    top.mkdir(parents=True, exist_ok=True)
    for requirement in sys.argv[2:]:
        print(fetch(top, requirement))


if __name__ == "__main__":
    main()
