"""Operations of PyTorch's client on the store at PORT: prints one JSON list [name, result] each.

Every operation has a client and keys of its own: a refusal ends the connection.
"""
import datetime
import json
import sys
import threading

import torch.distributed as dist

PORT = int(sys.argv[1])
BIG = 2**63 - 1


def client(seconds=0.5):
    """A client that waits so long for an answer, and longer to be connected: a machine may be busy."""
    s = dist.TCPStore("127.0.0.1", PORT, is_master=False, wait_for_workers=False, timeout=datetime.timedelta(seconds=20))
    s.set_timeout(datetime.timedelta(seconds=seconds))
    return s


def later(do):
    t = threading.Timer(0.1, lambda: do(client()))
    t.start()
    return t


def after(s, do, ask):
    t = later(do)
    out = ask(s)
    t.join()
    return out


def then(*steps):
    """Runs steps, and has the result of the last one."""

    def run(s, k):
        out = None
        for step in steps:
            out = step(s, k)
        return out

    return run


def put(value, key=""):
    return lambda s, k: s.set(k + key, value)


def get(s, k):
    return s.get(k)


def add(n):
    return lambda s, k: s.add(k, n)


def wait(s, k):
    return s.wait([k], datetime.timedelta(seconds=0.3))


def listed(s, k):
    return sorted(x.decode() if isinstance(x, bytes) else x for x in s.list_keys() if k in str(x))


def count(step):
    """How many keys more there are after a step."""

    def run(s, k):
        before = s.num_keys()
        step(s, k)
        return s.num_keys() - before

    return run


def pushed(*values):
    def run(s, k):
        for v in values:
            s.queue_push(k, v)

    return run


def one_after_another(s, k):
    first = client()
    first.set(k, "left")
    del first
    return s.get(k)


OPERATIONS = {
    "set and get": then(put("a"), get),
    "set empty": then(put(""), get),
    "set bytes": then(put(b"\x00\xff\n"), get),
    "set again": then(put("a"), put("b"), get),
    "set 1 KiB": then(put("x" * 1024), lambda s, k: len(s.get(k))),
    "set 1 MiB": then(put("x" * 2**20), lambda s, k: len(s.get(k))),
    "set 8 MiB less a byte": then(put("x" * (2**23 - 1)), lambda s, k: len(s.get(k))),
    "set 8 MiB and a byte": then(put("x" * (2**23 + 1)), lambda s, k: len(s.get(k))),
    "empty key": lambda s, k: (s.set("", "e"), s.get(""))[1],
    "key with spaces": lambda s, k: (s.set(k + " a\n", "v"), s.get(k + " a\n"))[1],
    "key of 4 KiB": lambda s, k: (s.set("k" * 4096, "v"), s.get("k" * 4096))[1],
    "key of 9 KiB": lambda s, k: (s.set("k" * 9216, "v"), s.get("k" * 9216))[1],
    "key of 1 MiB": lambda s, k: (s.set("k" * 2**20, "v"), s.get("k" * 2**20))[1],
    "get nothing": get,
    "get what comes": lambda s, k: after(s, lambda c: c.set(k, "late"), lambda s: s.get(k)),
    "add to nothing": add(5),
    "add twice": then(add(5), add(7)),
    "add less": then(add(5), add(-7)),
    "add zero": add(0),
    "add and get": then(add(41), get),
    "add to a set number": then(put("41"), add(1)),
    "add to less than zero": then(put("-41"), add(1)),
    "add to an empty value": then(put(""), add(1)),
    "add to a word": then(put("abc"), add(1)),
    "add to digits and more": then(put(" 41x"), add(1)),
    "add to a plus": then(put("+41"), add(1)),
    "add the most": add(BIG),
    "add beyond the most": then(add(BIG), add(1)),
    "add beyond the least": then(add(-BIG), add(-2)),
    "set over a number": then(add(1), put("a"), get),
    "compare and set nothing": lambda s, k: s.compare_set(k, "", "a"),
    "compare with what is not there": lambda s, k: s.compare_set(k, "b", "a"),
    "compare and set": then(put("a"), lambda s, k: s.compare_set(k, "a", "b"), get),
    "compare in vain": then(put("a"), lambda s, k: s.compare_set(k, "c", "b")),
    "compare in vain and get": then(put("a"), lambda s, k: s.compare_set(k, "c", "b"), get),
    "compare with nothing in vain": then(put("a"), lambda s, k: s.compare_set(k, "", "b")),
    "check nothing": lambda s, k: s.check([k]),
    "check": then(put("a"), lambda s, k: s.check([k])),
    "check one of two": then(put("a"), lambda s, k: s.check([k, k + "2"])),
    "check no keys": lambda s, k: s.check([]),
    "wait in vain": wait,
    "wait for what is there": then(put("a"), wait),
    "wait for what comes": lambda s, k: after(s, lambda c: c.set(k, "v"), lambda s: wait(s, k)),
    "wait for a number": lambda s, k: after(s, lambda c: c.add(k, 1), lambda s: wait(s, k)),
    "wait for two": then(put("a"), put("b", "2"), lambda s, k: s.wait([k, k + "2"])),
    "go on after a wait in vain": lambda s, k: (refused(wait, s, k), s.set(k, "a"), s.get(k))[2],
    "delete": then(put("a"), lambda s, k: s.delete_key(k)),
    "delete nothing": lambda s, k: s.delete_key(k),
    "delete and check": then(put("a"), lambda s, k: s.delete_key(k), lambda s, k: s.check([k])),
    "count a new key": count(put("a")),
    "count a deleted key": count(then(put("a"), lambda s, k: s.delete_key(k))),
    "append to nothing": then(lambda s, k: s.append(k, "a"), get),
    "append": then(put("a"), lambda s, k: s.append(k, "b"), get),
    "set many": then(lambda s, k: s.multi_set([k, k + "2"], ["a", "b"]), lambda s, k: s.get(k + "2")),
    "get many": then(put("a"), put("b", "2"), lambda s, k: s.multi_get([k, k + "2"])),
    "list keys": then(put("a"), put("b", "2"), listed),
    "list keys of numbers and not of queues": then(add(1), lambda s, k: s.queue_push(k + "q", "a"), listed),
    "push and pop": then(pushed("a", "b"), lambda s, k: [s.queue_pop(k), s.queue_pop(k)]),
    "length of a queue": then(pushed("a", "b"), lambda s, k: s.queue_len(k)),
    "length of no queue": lambda s, k: s.queue_len(k),
    "set by a client that has left": one_after_another,
}


def refused(do, s, k):
    """The result of an operation; a refusal counts, its words do not."""
    try:
        out = do(s, k)
    except Exception:
        return "refused"
    return repr(out)


for i, (name, do) in enumerate(OPERATIONS.items()):
    print(json.dumps([name, refused(do, client(), "key %d" % i)]), flush=True)
