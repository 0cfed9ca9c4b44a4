"""Jobs whose loop is a framework's, without one: what is refused, and that a run does not end because of Falcon."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from fake_hook import Mailbox, split
from falcon_torch import _hook, _megatron_lm, _torchtitan, _uneven, _votes
from falcon_torch._hosted import HostedJob, attach
from falcon_torch._megatron import MegatronJob
from falcon_torch._mesh import place, ranks_along
from ranks import play

STEPS = 6


def make() -> HostedJob:
    size = dist.get_world_size()
    return HostedJob(place(f"dp={size}", dist.get_rank(), size), 4, parameters=[torch.zeros(2)])


def train(mailbox: Mailbox, even: list[str], strange: int) -> Any:
    """The number of batches of each iteration; those of one rank can't be carried."""
    job = attach(make, "a framework")
    assert job is not None
    job.host(even[dist.get_rank()])
    source: Any = iter(lambda: object() if dist.get_rank() == strange else torch.zeros(1), None)
    took = []
    while job.advance(STEPS):
        batches, count = job.deal(source), job.split[dist.get_rank()]
        for _ in range(count):
            next(batches)
        took.append(count)
        job.close(job.iteration + 1)
    return took, mailbox.of("ack"), [s[1:] for s in mailbox.of("state")]


@pytest.mark.parametrize(
    ("even", "strange", "why"),
    [
        (["", ""], 0, "its batches hold more than tensors, numbers, texts, lists and dicts"),
        (["", ""], 1, "another rank can't move them"),
        (["a reason", "a reason"], -1, "a reason"),
        (["", "a reason"], -1, "another rank can't move them"),
    ],
)
def test_all_ranks_refuse_alike(even: list[str], strange: int, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    for took, acks, states in play(2, train, even, strange, posts=[split(0, 1, [3, 5])]):
        assert took == [4] * STEPS
        assert acks == [(1, 2, _hook.REFUSED_VALUES)]
        assert states == [(1, 1), (4, 4)]
    assert capfd.readouterr().err.count(f"falcon_torch: micro-batches stay where they are: {why}\n") == 1


def test_batches_move_where_nothing_is_in_the_way() -> None:
    got = [took for took, _, _ in play(2, train, ["", ""], -1, posts=[split(0, 1, [3, 5])])]
    assert got == [[4, 4] + [3] * 4, [4, 4] + [5] * 4]


def alone(_: Mailbox) -> bool:
    _votes.MEET_S = 1
    return dist.get_rank() == 1 or attach(make, "a framework") is None


def test_a_rank_that_does_not_come_does_not_end_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    assert play(2, alone) == [True, True]
    assert "falcon_torch: a framework trains without Falcon: not every rank has come" in capfd.readouterr().err


def ends(_: Mailbox, how: str) -> list[Any]:
    """The lines by which a rank says that it has ended, where the interpreter ends."""
    job = attach(make, "a framework")
    assert job is not None
    lines: list[Any] = []
    job.log.write = lambda **fields: lines.append(fields)  # type: ignore[method-assign]
    job.advance(STEPS)
    if how == "the framework":
        job.finish()
    elif how == "an error":
        sys.last_value = ValueError()
    job.left()
    job.left()
    return [line for line in lines if "end" in line]


@pytest.mark.parametrize(("how", "said"), [("the script", 1), ("the framework", 1), ("an error", 0)])
def test_a_script_that_ends_by_itself_says_so_once(how: str, said: int) -> None:
    assert play(1, ends, how) == [[{"end": "done", "next_iteration": 0}] * said]


def scales(_: Mailbox) -> list[Any]:
    """What a schedule finds in the config that it is given, and what is there afterwards."""
    seen = []
    config = SimpleNamespace(grad_scale_func=None, mtp_grad_scale_func=lambda: 5.0, calculate_per_token_loss=False)

    def schedule(**arguments: Any) -> None:
        scale = config.grad_scale_func
        seen.append((arguments["num_microbatches"], scale and scale(2.0), config.mtp_grad_scale_func()))

    job = MegatronJob(schedule, config, layout=place("dp=2", 0, 2), micro_batches=4, parameters=[])
    for counts in ([4, 4], [6, 2]):
        job._split = counts
        job.forward_backward(num_microbatches=4)
    return [seen, config.grad_scale_func, config.mtp_grad_scale_func()]


def test_every_scale_of_megatron_has_the_weight() -> None:
    assert play(1, scales) == [[[(4, None, 5.0), (6, 3.0, 7.5)], None, 5.0]]


@pytest.mark.parametrize(
    ("args", "config", "why"),
    [
        ({}, {}, ""),
        ({"rampup_batch_size": ["4"]}, {}, "--rampup-batch-size changes their number"),
        ({"gtp_weight_remat_size": 2}, {}, "--gtp-weight-remat-size spreads batches over further ranks"),
        ({}, {"moe_router_load_balancing_type": ["global_aux_loss"]}, "global_aux_loss adds up over all replicas"),
        ({}, {"moe_router_load_balancing_type": "aux_loss"}, ""),
        ({}, {"fp8": "e4m3", "fp8_recipe": "delayed"}, "delayed scaling of fp8 compares all replicas"),
        ({}, {"fp8": "e4m3", "fp8_recipe": "delayed", "tp_only_amax_red": True}, ""),
        ({}, {"fp8": "e4m3", "fp8_recipe": "mxfp8"}, ""),
        ({}, {"cuda_graph_impl": "local"}, "--cuda-graph-impl local captures a fixed number of them"),
        ({}, {"cuda_graph_impl": "none"}, ""),
    ],
    ids=str,
)
def test_where_megatron_ties_replicas_together(args: dict[str, Any], config: dict[str, Any], why: str) -> None:
    found = _uneven.kept_even(SimpleNamespace(**args), SimpleNamespace(**config), {})
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_groups_of_a_multi_module_job_are_not_known() -> None:
    none = SimpleNamespace()
    assert _uneven.kept_even(none, none, {"pg_collection": object()}) == (
        "the job has process groups of its own (pg_collection)"
    )


def fake_mpu(**sizes: int) -> Any:
    names = {
        "get_data_parallel_world_size": "dp",
        "get_tensor_model_parallel_world_size": "tp",
        "get_context_parallel_world_size": "cp",
        "get_expert_model_parallel_world_size": "ep",
        "get_expert_tensor_parallel_world_size": "etp",
        "get_pipeline_model_parallel_world_size": "pp",
        "get_virtual_pipeline_model_parallel_world_size": "vpp",
    }
    calls: dict[str, Any] = {call: lambda name=name: sizes.get(name, 1) for call, name in names.items()}
    return SimpleNamespace(model_parallel_is_initialized=lambda: True, **calls)


@pytest.mark.parametrize(
    ("sizes", "args", "text"),
    [
        ({"dp": 8}, {}, "dp=8"),
        ({"tp": 4, "dp": 4, "pp": 4}, {}, "tp=4,dp=4,pp=4"),
        ({"tp": 4, "dp": 4, "pp": 4}, {"use_tp_pp_dp_mapping": True}, "tp=4,pp=4,dp=4"),
        ({"tp": 2, "cp": 2, "ep": 4, "dp": 8, "pp": 2}, {}, "tp=2,cp=2,etp=1,ep=4,dp=8,pp=2"),
        ({"dp": 2, "pp": 2, "vpp": 3}, {}, "dp=2,pp=2,vpp=3"),
        ({"tp": 2, "dp": 4}, {"use_megatron_fsdp": True}, "tp=2,fsdp=4"),
    ],
    ids=str,
)
def test_the_mesh_of_megatron(
    sizes: dict[str, int], args: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_megatron_lm, "_check_ranks", lambda *_: None)
    assert _megatron_lm.mesh_of(SimpleNamespace(**args), fake_mpu(**sizes)) == text


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"dp_shard": 8}, "fsdp=8"),
        ({"dp_replicate": 2, "dp_shard": 4, "tp": 2, "pp": 2}, "tp=2,fsdp=4,dp=2,pp=2"),
        ({"dp_shard": 4, "ep": 4}, "etp=1,ep=4,fsdp=4"),
        ({}, "dp=1"),
    ],
    ids=str,
)
def test_the_mesh_of_torchtitan(sizes: dict[str, int], text: str) -> None:
    dims = dict.fromkeys(("tp", "cp", "ep", "dp_shard", "dp_replicate", "pp"), 1) | sizes
    assert _torchtitan.mesh_of(SimpleNamespace(**dims)) == text


def test_a_checkpoint_that_megatron_can_not_write_ends_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    def save_checkpoint_and_time(iteration: int) -> None:
        raise OSError(f"no room for {iteration}")

    training: Any = SimpleNamespace(save_checkpoint_and_time=save_checkpoint_and_time)
    training.train_step = training.checkpoint_and_decide_exit = print
    loop = _megatron_lm.Loop(training, None)
    loop._last = {"iteration": 7, "more": 1}
    with pytest.raises(SystemExit, match="falcon_torch: the checkpoint of iteration 7 was not written"):
        loop._store(7)
    assert "no room for 7" in capfd.readouterr().err


def test_ranks_along_a_dimension() -> None:
    text = "tp=2,etp=1,ep=2,dp=3,pp=2"
    assert [ranks_along(text, 9, name) for name in ("tp", "dp", "pp", "cp")] == [[8, 9], [7, 9, 11], [3, 9], [9]]


def test_a_trainer_that_pipelines_keeps_its_counts() -> None:
    trainer = SimpleNamespace(parallel_dims=SimpleNamespace(pp=2))
    assert "a pipeline exchanges gradients" in _torchtitan.kept_even(trainer)
