"""Workers as Ray actors, on this machine or on a cluster: the only importer of ray (extra `ray`).

An actor is one process with one model on the devices that Ray gives it. Ray is asked to restart nothing, so that it is
known here which cells a dead one had.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from ropebench.cluster import Died
from ropebench.errors import UsageError
from ropebench.record import Json
from ropebench.sweep import Sweep
from ropebench.worker import Job, Order, Ready, Step, Worker

# What a worker is told of this process's environment: where caches are and whether there is a network; no secrets.
_TOLD = ("ROPEBENCH_CACHE", "ROPEBENCH_MODELS", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_CACHE")


@dataclass(frozen=True)
class Cluster:
    """How to reach Ray, and what each worker gets. `address`: auto for the running cluster, local for one of this
    process's own, HOST:PORT; None leaves it to Ray (RAY_ADDRESS, a running one, else its own). `gpus` per worker: None
    is 1 where the cluster has any; `workers`: None is as many as there are GPUs for, without GPUs one per CPU."""

    address: str | None = None
    gpus: float | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a number that cannot be, and where ray is not installed."""
        if self.gpus is not None and not (0 <= self.gpus < 1 or self.gpus == int(self.gpus)):
            raise UsageError(
                f"--gpus-per-cell {self.gpus:g}: allowed: a whole number, or a part of one GPU such as 0.5"
            )
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers {self.workers}: must be at least 1")
        if find_spec("ray") is None:
            raise UsageError("--executor ray needs Ray: pip install 'ropebench[ray]'")


@dataclass
class RayCrew:
    """The workers of a run (`cluster.Crew`)."""

    size: int
    gpus: float
    cpus: int
    order: Order | None = None
    _ray: Any = None
    _actors: dict[int, Any] = field(default_factory=dict)
    _asked: dict[int, deque[Any]] = field(default_factory=dict)  # what has no answer yet, in its order
    _hired: int = 0

    def hire(self, identities: Mapping[str, Json]) -> int:
        """Start an actor; it loads its model as soon as Ray has a place for it."""
        self._hired += 1
        kind = self._ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_restarts=0, max_task_retries=0)(Worker)
        actor = self._actors[self._hired] = kind.remote(self.order)
        self._asked[self._hired] = deque([actor.ready.remote(identities)])
        return self._hired

    def begin(self, worker: int, number: int, job: Job) -> None:
        """Give a worker a job."""
        self._asked[worker].append(self._actors[worker].begin.remote(number, job))

    def step(self, worker: int) -> None:
        """Ask a worker for the next batch."""
        self._asked[worker].append(self._actors[worker].step.remote())

    def answers(self, seconds: float) -> list[tuple[int, Ready | Step | Died]]:
        """What has come in, each worker's in the order in which it was asked."""
        first = {refs[0]: worker for worker, refs in self._asked.items() if refs}
        if not first:
            return []
        ready, _ = self._ray.wait([*first], num_returns=1, timeout=seconds)
        if ready:  # and whatever else is there by now
            ready, _ = self._ray.wait([*first], num_returns=len(first), timeout=0)
        found: list[tuple[int, Ready | Step | Died]] = []
        for ref in ready:
            worker = first[ref]
            self._asked[worker].popleft()
            answer = self._got(ref)
            if isinstance(answer, Died):
                self._asked[worker].clear()
                self._drop(worker)
            if answer is not None:
                found.append((worker, answer))
        return found

    def _got(self, ref: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(ref)
        except RayTaskError as error:  # what the worker's own code raised
            cause = error.cause
            raise cause if isinstance(cause, UsageError) else error from None
        except RayError as error:
            return Died(_reason(error))

    def _drop(self, worker: int) -> None:
        self._ray.kill(self._actors.pop(worker))

    def close(self) -> None:
        """End all workers. The cluster stays, unless this process started it."""
        for worker in [*self._actors]:
            self._drop(worker)
        self._ray.shutdown()


def crew(cluster: Cluster, device: str) -> RayCrew:
    """Connect to Ray, or start it here, and say how many workers of what size there can be. `device` as asked for.

    Raises UsageError where there is no cluster, or not what was asked for.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of our own reports to nobody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray as library

    logging.getLogger("ray").setLevel(logging.ERROR)  # importing it sets another
    ray: Any = library
    if device not in ("auto", "cpu"):
        raise UsageError(
            f"--device {device} with --executor ray: Ray gives each worker its device; leave it out, or cpu"
        )
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": False}
    if cluster.address == "local":
        quiet["include_dashboard"] = False
    try:
        ray.init(address=cluster.address, **quiet)
    except Exception as error:  # Ray raises that class itself, too, as where its start takes too long
        raise UsageError(_unreached(cluster.address, error)) from None
    _hush()
    try:
        return _sized(cluster, device, ray.cluster_resources(), ray)
    except UsageError:
        ray.shutdown()
        raise


def _unreached(address: str | None, error: Exception) -> str:
    """Why there is no cluster, and what to do."""
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    if address in (None, "local"):
        return f"--executor ray: Ray could not be started here ({first}); try again, or start it with ray start --head"
    return (
        f"--address {address}: no Ray cluster could be reached ({first}); start one with ray start --head, or leave "
        "--address out"
    )


def _hush() -> None:
    """What befalls its workers Ray also prints, on standard output, where `--json` has the records; it has no setting
    against that. It is told here by `Died`."""
    module = sys.modules.get("ray._private.worker")
    if hasattr(module, "print_to_stdstream"):
        vars(module)["print_to_stdstream"] = lambda *_, **__: None


def _sized(cluster: Cluster, device: str, there: Mapping[str, float], ray: Any = None) -> RayCrew:
    """The crew that a cluster's resources allow."""
    cpus, gpus = int(there.get("CPU", 0)), float(there.get("GPU", 0))
    each = cluster.gpus if cluster.gpus is not None else float(gpus > 0 and device != "cpu")
    if each > gpus:
        raise UsageError(f"--gpus-per-cell {each:g}: the Ray cluster has {gpus:g} GPUs")
    if each and device == "cpu":
        raise UsageError(f"--gpus-per-cell {each:g} and --device cpu contradict each other: give one")
    most = min(int(gpus / each), cpus) if each else cpus
    size = cluster.workers or max(1, most)
    own = 1 if each else max(1, cpus // size)
    if size > most:
        raise UsageError(f"--workers {size}: the Ray cluster has {cpus} CPUs and {gpus:g} GPUs, enough for {most}")
    return RayCrew(size, each, own, None, ray)


def resolved(crew: RayCrew, sweep: Sweep) -> Sweep:
    """The sweep with its number format as the workers' device has it, which may be another than this machine's."""

    def dtype(word: str) -> str:
        from ropebench.device import choose_device, choose_dtype

        return choose_dtype(word, choose_device(sweep.device))

    if sweep.dtype != "auto" or not crew.gpus:
        return sweep
    there = crew._ray.remote(num_cpus=crew.cpus, num_gpus=crew.gpus)(dtype)
    return replace(sweep, dtype=crew._ray.get(there.remote(sweep.dtype)))


def order(crew: RayCrew, sweep: Sweep, argv: tuple[str, ...], run_id: str) -> None:
    """Say what the workers are to measure."""
    told = {name: value for name in _TOLD if (value := os.environ.get(name)) is not None}
    threads = None if crew.gpus else crew.cpus
    crew.order = Order(sweep, argv, run_id, os.getcwd(), told, threads)


_SIGNS = {
    "killed for lack of memory": ("memory pressure", "running low on memory", "OutOfMemory"),
    "its machine is gone": ("node has died", "node died", "node failure", "node was terminated"),
    "its process ended": ("worker process has died", "process died", "exited"),
}


def _reason(error: Exception) -> str:
    """In a few words what Ray says of a dead actor, without its ids and addresses."""
    text = f"{type(error).__name__} {error}"
    found = (said for said, signs in _SIGNS.items() if any(sign in text for sign in signs))
    return next(found, type(error).__name__)
