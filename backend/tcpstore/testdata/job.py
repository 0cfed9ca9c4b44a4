"""One process of a Gloo job that meets in the store of the environment.

Prints "ok RANK ATTEMPT" when every group operation gave what it must.
"""
import datetime
import os

import torch
import torch.distributed as dist

SECOND = datetime.timedelta(seconds=1)


def total(group, value):
    t = torch.tensor([float(value)])
    dist.all_reduce(t, group=group)
    return t.item()


def waits_in_vain(store):
    try:
        store.wait(["never"], SECOND / 4)
    except RuntimeError:
        return
    raise AssertionError("a key came that nobody set")


def main():
    dist.init_process_group("gloo", init_method="env://", timeout=60 * SECOND)
    rank, n = dist.get_rank(), dist.get_world_size()
    assert total(None, rank + 1) == n * (n + 1) / 2
    pairs = [dist.new_group([r, r + n // 2]) for r in range(n // 2)]
    assert total(pairs[rank % (n // 2)], 10**rank) == 10 ** (rank % (n // 2)) + 10 ** (rank % (n // 2) + n // 2)
    dist.barrier()

    store = dist.distributed_c10d._get_default_store()
    waits_in_vain(store)
    store.set("from %d" % rank, "x" * 5000)
    assert len(store.get("from %d" % ((rank + 1) % n))) == 5000
    store.add("here", 1)
    dist.barrier()
    assert store.get("here") == b"%d" % n
    if rank == 0:
        assert store.compare_set("cas", "", "a") == b"a"
        assert store.compare_set("cas", "b", "c") == b"a"
        assert store.compare_set("cas", "a", "c") == b"c"
        assert store.delete_key("cas") and not store.delete_key("cas")
    dist.barrier()
    dist.destroy_process_group()
    print("ok", rank, os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)


main()
