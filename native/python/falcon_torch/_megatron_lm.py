"""Megatron-LM's training loop under Falcon: pretrain() as it is.

Falcon's job is stepped by three functions of megatron.training.training, which are looked up by name in each
iteration: train_step begins an iteration, checkpoint_and_decide_exit ends it, save_checkpoint_and_time writes
checkpoints. The number of micro-batches that Megatron counts samples and learning rates by stays as it is; only the
schedule gets another one.

Inside falcon_torch.run the job is made as soon as setup_model_and_optimizer has made what it trains: before the data,
which follow from the samples consumed, and before the loop, which begins at the iteration that args have by then.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch.distributed as dist

from . import _megatron_state, _run
from ._hook import hook_loaded
from ._hosted import HostedJob, attach, say
from ._megatron import MegatronJob
from ._mesh import place, ranks_along
from ._recover import through
from ._uneven import kept_even
from ._zero import of_megatron

LOOP = "megatron.training.training"
INSTALLED = "falcon_loop"  # attribute of Megatron's module, once its functions are replaced
SETUP = "setup_model_and_optimizer"
NEEDED = ("train_step", "checkpoint_and_decide_exit", "save_checkpoint_and_time", "get_args", "mpu")
NEEDED_TO_ENTER = (SETUP, "destroy_global_state", "update_num_microbatches")


class MegatronLMJob(HostedJob, MegatronJob):
    """One rank of a job of Megatron-LM."""

    progress: _megatron_state.Progress | None = None  # where pretrain() can be entered again

    @through
    def forward_backward(self, **arguments: Any) -> Any:
        """Run the schedule with this iteration's micro-batches, and their data."""
        if not arguments.get("forward_only"):
            arguments["data_iterator"] = self.deal(arguments["data_iterator"])
        return super().forward_backward(**arguments)

    def running(self, function: Any) -> Any:
        """The job's forward_backward in the place of a schedule of Megatron's."""
        self._function = function
        return self.forward_backward

    def recover_megatron(self, model: list[Any], optimizer: Any, progress: _megatron_state.Progress) -> None:
        """Inside falcon_torch.run: survive the death of peers, and take another rank over."""
        self.progress = progress
        self.recover_by_entering(_megatron_state.state_of(model, optimizer, progress), has_parts=True)

    def _complete(self) -> bool:
        """Count the iteration whose update is done."""
        assert self.progress is not None
        self.progress.complete(self.recovered.state.saved_extras[0])
        return True


def mesh_of(args: Any, mpu: Any) -> str:
    """The mesh of Megatron's groups, as a text. Raise ValueError where they are in no order that a text can say."""
    if not mpu.model_parallel_is_initialized():
        raise ValueError("this job does not use Megatron's parallel_state; give megatron_lm the mesh")
    dp = mpu.get_data_parallel_world_size()
    sharded = getattr(args, "use_megatron_fsdp", False) or getattr(args, "use_torch_fsdp2", False)
    experts = mpu.get_expert_model_parallel_world_size()
    inner = {
        "tp": mpu.get_tensor_model_parallel_world_size(),
        "cp": mpu.get_context_parallel_world_size(),
        "etp": mpu.get_expert_tensor_parallel_world_size() if experts > 1 else 1,
        "ep": experts,
    }
    dims = {name: size for name, size in inner.items() if size > 1 or (name == "etp" and experts > 1)}
    outer = {"fsdp" if sharded else "dp": dp}
    stages = {"pp": mpu.get_pipeline_model_parallel_world_size()}
    stages = stages if stages["pp"] > 1 else {}
    dims |= stages | outer if getattr(args, "use_tp_pp_dp_mapping", False) else outer | stages
    virtual = mpu.get_virtual_pipeline_model_parallel_world_size() or 1
    dims |= {"vpp": virtual} if virtual > 1 else {}
    text = ",".join(f"{name}={size}" for name, size in dims.items())
    _check_ranks(text, mpu)
    return text


def _check_ranks(text: str, mpu: Any) -> None:
    """Raise ValueError where Megatron's groups have other ranks than the mesh says."""
    groups = {"dp": mpu.get_data_parallel_group(), "pp": mpu.get_pipeline_model_parallel_group()}
    for name, group in groups.items():
        named = "fsdp" if name == "dp" and "fsdp=" in text else name
        ranks = dist.get_process_group_ranks(group)
        if ranks != ranks_along(text, dist.get_rank(), named):
            raise ValueError(
                f"mesh {text!r} does not have Megatron's {name} ranks {ranks[:8]}; give megatron_lm the mesh"
            )


def _named_as(theirs: Callable[..., Any], mine: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls mine, and looks as theirs does to whoever asks for its name or arguments."""

    @wraps(theirs)
    @through
    def function(*args: Any, **kwargs: Any) -> Any:
        return mine(*args, **kwargs)

    return function


class Loop:
    """Steps a job from Megatron's functions."""

    def __init__(self, training: Any, mesh: str | None) -> None:
        self._training, self._mesh = training, mesh
        self._step, self._decide, self._save = (getattr(training, name) for name in NEEDED[:3])
        self._setup = getattr(training, SETUP, None)
        self._takes = {f: inspect.signature(f) for f in (self._step, self._decide, self._save)}
        self._stored = -1  # iteration of the newest checkpoint
        self._begin()

    def _begin(self) -> None:
        """Know nothing of a job yet."""
        self._job: MegatronLMJob | None = None
        self._tried, self._hosts = False, False
        self._last: dict[str, Any] = {}  # arguments of the function that ended the last iteration

    def install(self) -> None:
        """Put the job's functions in the place of Megatron's."""
        places = dict(zip(NEEDED, (self.step, self.decide, self.save), strict=False))
        if all(hasattr(self._training, name) for name in NEEDED_TO_ENTER):
            places[SETUP] = self.setup
            _run.when_left(self.forget)
        for name, mine in places.items():
            setattr(self._training, name, _named_as(getattr(self._training, name), mine))
        setattr(self._training, INSTALLED, self)

    def forget(self) -> None:
        """pretrain() was left, and is entered again."""
        self._begin()
        _megatron_state.forget(self._training)

    @through
    def setup(self, *args: Any, **kwargs: Any) -> Any:
        """The model, its optimizer and its schedule: setup_model_and_optimizer. In them goes what the rank has kept."""
        assert self._setup is not None
        runner = _run.current()
        if runner is None:
            return self._setup(*args, **kwargs)
        given = self._training.get_args()
        if runner.task is None:
            made = self._setup(*args, **kwargs)
        else:
            with _megatron_state.without_load(given):
                made = self._setup(*args, **kwargs)
        model, optimizer, scheduler = made
        if optimizer is not None:
            self._tried = True
            self._job = self._enter(given, model, optimizer, scheduler)
        return made

    def _enter(self, args: Any, model: list[Any], optimizer: Any, scheduler: Any) -> MegatronLMJob | None:
        """Make the job, and give it the state that this process or a replica has kept."""
        config = self._training.get_model_config(model[0])
        parts = {"model": model, "optimizer": optimizer, "config": config, "forward_backward_func": None}
        job = self._attach(parts)
        if job is None:
            return None
        why = _megatron_state.not_kept(args, config, optimizer, job.zero.instances)
        if why:
            say(f"a death restarts the job, and ranks keep their places: {why}")
            return job
        job.recover_megatron(model, optimizer, _megatron_state.Progress(self._training, optimizer, scheduler))
        args.iteration = job.iteration
        return job

    @through
    def step(self, *args: Any, **kwargs: Any) -> Any:
        """One iteration: train_step."""
        call = self._takes[self._step].bind(*args, **kwargs)
        if not self._tried:
            self._tried = True
            self._job = self._attach(call.arguments)
        if self._job is not None:
            if not self._hosts:
                self._hosts = True
                self._job.host(kept_even(self._training.get_args(), call.arguments["config"], call.arguments))
            self._job.begin(self._until())
            call.arguments["forward_backward_func"] = self._job.running(call.arguments["forward_backward_func"])
        return self._step(*call.args, **call.kwargs)

    @through
    def decide(self, *args: Any, **kwargs: Any) -> Any:
        """The end of an iteration: checkpoint_and_decide_exit."""
        leave = self._decide(*args, **kwargs)
        if self._job is None:
            return leave
        self._last = self._takes[self._decide].bind(*args, **kwargs).arguments
        self._job.close(self._last["iteration"])  # Megatron may have skipped some
        if self._job.progress is not None:
            self._job.progress.ended(self._last["num_floating_point_operations_so_far"])
        self._job.advance(0 if leave else self._until())
        return leave or self._job.stopped

    @through
    def save(self, *args: Any, **kwargs: Any) -> Any:
        """A checkpoint of Megatron's own: save_checkpoint_and_time."""
        done = self._save(*args, **kwargs)
        arguments = self._takes[self._save].bind(*args, **kwargs).arguments
        whole = not arguments.get("non_persistent_ckpt") and not self._training.get_args().async_save
        if self._job is not None and whole:
            self._stored = arguments["iteration"]
            self._job.checkpointed(self._stored)
        return done

    def _until(self) -> int:
        return int(self._training.get_args().train_iters)

    def _store(self, iteration: int) -> None:
        """Write a checkpoint that Falcon ordered, where Megatron has not just written it.

        A failure ends the process, as one of Megatron's own does: other ranks may wait for this one in the writing.
        """
        if self._stored == iteration:
            return
        takes = self._takes[self._save].parameters
        try:
            self._save(**{name: value for name, value in self._last.items() if name in takes})
            if self._training.get_args().async_save:
                self._training.maybe_finalize_async_save(blocking=True)
        except Exception as error:
            traceback.print_exc()
            raise SystemExit(f"falcon_torch: the checkpoint of iteration {iteration} was not written") from error
        self._stored = iteration

    def _attach(self, arguments: dict[str, Any]) -> MegatronLMJob | None:
        """Make the job, at the latest at the first iteration; None where not every rank has the hook."""
        args, mpu = self._training.get_args(), self._training.mpu
        text = self._mesh or mesh_of(args, mpu)
        layout = place(text, dist.get_rank(), dist.get_world_size())
        model, config = arguments["model"], arguments["config"]
        group = getattr(config, "microbatch_group_size_per_vp_stage", None) or layout.stages
        multiple = group if len(model) > 1 else 1
        job = attach(
            lambda: MegatronLMJob(
                arguments["forward_backward_func"],
                config,
                layout=layout,
                micro_batches=self._training.get_num_microbatches(),
                parameters=[p for chunk in model for p in chunk.parameters()],
                begin=getattr(args, "curr_iteration", args.iteration),
                least=multiple,
                multiple=multiple,
                save=self._store if args.save else None,
                zero=of_megatron([*model, arguments["optimizer"]], layout, args),
            ),
            "Megatron-LM",
        )
        if job is not None and arguments["optimizer"] is not None:
            job.mark_megatron_updates(arguments["optimizer"])
        return job


def megatron_lm(mesh: str | None = None) -> None:
    """See falcon_torch.megatron_lm."""
    if not hook_loaded():
        return
    training: Any = importlib.import_module(LOOP)
    missing = [name for name in NEEDED if not hasattr(training, name)]
    if missing or "forward_backward_func" not in inspect.signature(training.train_step).parameters:
        raise ValueError(
            f"this Megatron-LM has {'no ' + missing[0] if missing else 'another train_step'}, unlike core_v0.19: "
            "use falcon_torch.megatron"
        )
    if not hasattr(training, INSTALLED):
        Loop(training, mesh).install()
