"""DistributedDataParallel on another group, with its gradients summed in the same order as before."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from ._votes import Votes


class Buckets:
    """In which order the wrapper's reducer has the parameters: it decides in which order gradients are summed.

    PyTorch begins with an order of its own, and after the first iteration takes that of the gradients. A wrapper
    that is made again in the midst of training needs the second one at once, or sums round differently.
    """

    NONE = 1 << 62

    def __init__(self, model: Any) -> None:
        self._model, self._order = model, list[int]()

    def learn(self, order: list[int]) -> None:
        """Know the order of a wrapper that was made in place of another one."""
        self._order = order if len(order) == len(self._model._build_params_for_reducer()[0]) else []

    def build(self) -> None:
        """Have the wrapper's buckets in the known order, on its own group; every rank of that takes part."""
        if self._order:
            rewrap(self._model, self._order, self._model.process_group)

    def known(self) -> list[int]:
        """The order by which buckets were built again; empty where they were not."""
        if not self._order:
            told = self._model._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")
            self._order = [int(index) for index in told.replace(",", " ").split()]
        return self._order

    def agree(self, votes: Votes) -> list[int]:
        """The order that any rank knows: one that has just begun knows none."""
        count = len(self._model._build_params_for_reducer()[0])
        mine = self.known() if self._model.reducer is not None else self._order
        got = votes.least(mine if len(mine) == count else [self.NONE] * count)
        self._order = got if sorted(got) == list(range(count)) else []
        return self._order


def move(model: Any, buckets: Buckets) -> None:
    """Put the wrapper on the new default group as it is."""
    if model._comm_hooks or model.reducer is None or not hasattr(model, "_update_process_group"):
        rewrap(model, buckets.known(), dist.group.WORLD)  # a hook may hold the old group; PyTorch 2.4 has no other way
        return
    model._update_process_group(dist.group.WORLD)
    model.require_backward_grad_sync = True


def rewrap(model: Any, order: list[int], group: Any) -> None:
    """Put the wrapper on a group, as if it had been unpickled there, with this order of parameters."""
    hooks, model._comm_hooks = model._comm_hooks, []
    try:
        model.reducer = model.logger = None  # the old reducer's hooks go with it
        model.process_group = group
        model.require_backward_grad_sync = True
        _make_reducer(model, order)
        for hook, hook_state in hooks:
            model.register_comm_hook(hook_state, hook)
    except BaseException:
        model._comm_hooks = hooks  # for the next try
        raise


def _make_reducer(model: Any, order: list[int]) -> None:
    parameters, sparse = model._build_params_for_reducer()
    known = bool(order) and hasattr(dist.Reducer, "_push_all_rebuilt_params")
    if known:
        parameters, sparse = [parameters[k] for k in order], [sparse[k] for k in order]
    names = model._build_debug_param_to_name_mapping(parameters)
    model._ddp_init_helper(parameters, sparse, names, model.static_graph)
    if model.static_graph:
        model.reducer._set_static_graph()
        model.logger._set_static_graph()
    elif known:
        model.reducer._push_all_rebuilt_params()
        model.reducer._rebuild_buckets()
