"""The package's calls; each imports what it needs, and torch with it, when it is called.

All take save and load. save(i) writes this rank's part of the checkpoint with which a restart begins at iteration
i, and returns when it is on disk; it is called on all ranks, between two iterations, when Falcon orders one. load(i)
takes everything over from that checkpoint. Both fail by raising, or by returning False; a failure is everybody's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import torch

    from ._job import Job
    from ._megatron import MegatronJob
    from ._pipeline import PipelineJob
    from ._storage import Load, Save


def ddp(
    model: Any,
    optimizer: torch.optim.Optimizer,
    micro_batches: int,
    begin: int = 0,
    state: Sequence[Any] = (),
    groups: Callable[[], None] | None = None,
    save: Save | None = None,
    load: Load | None = None,
) -> Job:
    """Bring a DistributedDataParallel job under Falcon.

    model is the DistributedDataParallel module, micro_batches how many micro-batches each replica
    runs per iteration before Falcon moves any, begin the first iteration. Every rank must call it.
    state is what else an iteration changes, with state_dict and load_state_dict: a scheduler, a
    scaler, a data loader. groups makes the job's own process groups again after a recovery.
    Raise ValueError for another kind of model, for counts below 1, and for groups of its own without
    groups; RuntimeError where the environment would not let a survivor live.
    """
    from . import _ddp

    return _ddp.ddp(model, optimizer, micro_batches, begin, state, groups, save, load)


def fsdp(
    model: Any,
    optimizer: torch.optim.Optimizer,
    micro_batches: int,
    begin: int = 0,
    mesh: Any = None,
    sync_shards: bool = True,
    save: Save | None = None,
    load: Load | None = None,
    state: Sequence[Any] = (),
) -> Job:
    """Bring a job that uses fully_shard (FSDP2) under Falcon.

    model is the root module that fully_shard was applied to, micro_batches how many micro-batches
    each rank runs per iteration before Falcon moves any. With HSDP (a mesh of replicate and shard)
    micro-batches move between the replicas; the ranks of a shard group always have equally many.
    mesh, a DeviceMesh with named dimensions or a text such as "tp=2,fsdp=4,dp=2" (innermost first),
    is needed where the job has other dimensions than these two. Between micro-batches gradients are
    kept sharded; with sync_shards off they are kept whole, which saves reduce-scatters and takes the
    memory of all gradients. Every rank must call it. Raise ValueError for another kind of model, for
    counts below 1, and where the mesh does not fit the job.
    """
    from . import _fsdp

    return _fsdp.fsdp(model, optimizer, micro_batches, begin, mesh, sync_shards, save, load, state)


def pipeline(
    schedule: Any,
    optimizer: torch.optim.Optimizer,
    mesh: Any,
    begin: int = 0,
    save: Save | None = None,
    load: Load | None = None,
    state: Sequence[Any] = (),
) -> PipelineJob:
    """Bring a job that uses torch.distributed.pipelining under Falcon.

    schedule is made for the micro-batches that each replica runs per iteration before Falcon moves
    any; the job's step and schedule replace it. mesh, a DeviceMesh with named dimensions or a text
    such as "dp=2,pp=4" (innermost first), has all ranks. Stages are DistributedDataParallel or FSDP
    modules where there are replicas. Losses are means over a micro-batch (scale_grads, the default)
    or sums that need no weight (scale_grads off). Every rank must call it. Raise ValueError for
    another kind of schedule and where the mesh does not fit it.
    """
    from . import _pipeline

    return _pipeline.pipeline(schedule, optimizer, mesh, begin, save, load, state)


def megatron(
    forward_backward_func: Callable[..., Any],
    model: Any,
    optimizer: Any,
    micro_batches: int,
    mesh: Any,
    begin: int = 0,
    save: Save | None = None,
    load: Load | None = None,
    state: Sequence[Any] = (),
) -> MegatronJob:
    """Bring a job that uses Megatron-core's schedules under Falcon.

    forward_backward_func is what get_forward_backward_func returned; the job's forward_backward
    takes its place and its arguments, and replaces num_microbatches. model is the module with
    Megatron's config, or the list of its chunks; optimizer Megatron's or one of torch. mesh is a
    text such as "tp=2,dp=4,pp=2" (innermost first). Data must come from the job's loader, or by the
    job's numbers: Megatron's own sampler deals even splits. Every rank must call it. Raise
    ValueError for a model without a config and where the mesh does not fit the job.
    """
    from . import _megatron

    return _megatron.megatron(forward_backward_func, model, optimizer, micro_batches, mesh, begin, save, load, state)


def megatron_lm(mesh: str | None = None) -> None:
    """Bring Megatron-LM's own training loop under Falcon: call it once, anywhere before pretrain().

    Without the hook it does nothing. mesh is found from Megatron's groups; give a text such as "tp=2,dp=4,pp=2"
    (innermost first) where they are in another order. Raise ValueError for a Megatron-LM whose loop is another one, and
    in the first iteration where the mesh does not fit the job.
    """
    from . import _megatron_lm

    _megatron_lm.megatron_lm(mesh)


def torchtitan(trainer: Any) -> None:
    """Bring a Trainer of torchtitan under Falcon: call it once, before trainer.train().

    Without the hook it does nothing. Raise ValueError for another kind of trainer.
    """
    from . import _torchtitan

    _torchtitan.torchtitan(trainer)


def transformers(trainer: Any, mesh: str | None = None) -> None:
    """Bring a Trainer of Hugging Face's transformers under Falcon: call it once, before trainer.train().

    Checkpoints that Falcon orders are the trainer's own: train(resume_from_checkpoint=True) goes on with them. Without
    the hook it does nothing. Raise ValueError for another kind of trainer, and when training begins where the ranks of
    its strategy are not known and no mesh, such as "fsdp=4,dp=2", is given.
    """
    from . import _transformers

    _transformers.transformers(trainer, mesh)


def accelerate(accelerator: Any, save: Any = None, begin: int = 0, mesh: str | None = None) -> None:
    """Bring a loop of the script's with an Accelerator under Falcon: call it once, after accelerator.prepare().

    save is a folder, in which the state of the accelerator is saved when Falcon orders a checkpoint, or a function of
    an iteration; none is needed where the accelerator names its checkpoints by itself. begin is the first iteration.
    An order to stop ends the script by exit 0, before a forward. Without the hook it does nothing. Raise ValueError
    for other counts of optimizers than one, where save can't be right, and where the ranks are not known.
    """
    from . import _accelerate

    _accelerate.accelerate(accelerator, save, begin, mesh)


def lightning(trainer: Any, mesh: str | None = None) -> None:
    """Bring a Trainer of Lightning under Falcon: call it once, before trainer.fit().

    Checkpoints that Falcon orders lie in the folder of the trainer's checkpoint callback: ckpt_path="last" finds them.
    Without the hook it does nothing. Raise ValueError for another kind of trainer, and when training begins with
    several optimizers, or where the ranks of the strategy are not known and no mesh is given.
    """
    from . import _lightning

    _lightning.lightning(trainer, mesh)


def deepspeed(engine: Any, save: Any = None, mesh: str | None = None) -> None:
    """Bring an engine of DeepSpeed under Falcon: call it once, after a checkpoint was loaded and before the first step.

    save is the folder of engine.save_checkpoint, or a function of an iteration; without it no checkpoint can be
    ordered. An order to stop ends the script by exit 0, before a forward or a train_batch. Without the hook it does
    nothing. Raise ValueError for what is no engine, and where the ranks are not known and no mesh is given.
    """
    from . import _deepspeed

    _deepspeed.deepspeed(engine, save, mesh)


def run(train: Callable[[], Any]) -> Any:
    """Call train, and return what it returns; call it again where its processes get other groups or ranks.

    For jobs whose ranks hold different state (fsdp, pipeline), which can't be put on new groups in place: inside train
    make meshes, model, optimizer, the job and its loop, outside init_process_group. When a peer dies or a placement is
    ordered, train is left by an exception, and called again in the same process; the call that makes the job then
    brings the state back, or that of a replica, and the loop goes on at the right iteration. train must not catch
    BaseException, and initial weights must be there before the job is made. Without the hook it is train().
    Raise RuntimeError without a process group, and where run is called inside run.
    """
    from . import _run

    return _run.run(train)
