"""A loaded model with its only thread, and the memory of its process."""

import asyncio
import ctypes
import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from embodied_rm.models.subgoal_state import SubgoalState
from embodied_rm.models.subgoals import SubgoalRewardModel

IDLE_WINDOW_S = 1.0  # shortest idle period, in seconds
MAX_IDLE_CPU_S = 0.02  # largest CPU time within an idle period, in seconds
SELF_TEST_FAILED_MESSAGE = "the model failed its self-test: its predictions differ from those in its checkpoint"


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """Metadata of a served model."""

    name: str
    version: str  # digest of everything that decides its predictions
    views: tuple[str, ...] | None  # view names of the model; None: any
    image_size: tuple[int, int] | None  # height and width of its input; None: any
    predicts_success: bool
    success_threshold: float | None  # success probability from which a frame counts as done; None: not calibrated
    supports_restore: bool  # whether the state of episodes can be returned and restored
    passed_self_test: bool  # whether its predictions on fixed images equal those stored with the checkpoint


@dataclass(frozen=True, kw_only=True)
class ModelHandle:
    """A model with the only thread in which it runs."""

    model: SubgoalRewardModel
    metadata: ModelMetadata
    example_state: SubgoalState  # a state of this model, against which states from clients are validated
    executor: ThreadPoolExecutor = field(repr=False)
    """Single worker in which the model is loaded and runs. With a second OpenMP thread pool, OpenMP assumes
    oversubscription and lets threads sleep between operations: inference was measured to take 1.5 times as long."""


ModelLoader = Callable[[], tuple[SubgoalRewardModel, ModelMetadata, SubgoalState]]


def load_in_thread(load_model: ModelLoader) -> ModelHandle:
    """Load a model in a new thread."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="inference")
    model, metadata, example_state = executor.submit(load_model).result()
    torch.set_num_threads(1)  # for this thread and later ones, which only take rows from states
    return ModelHandle(model=model, metadata=metadata, example_state=example_state, executor=executor)


async def trim_when_idle() -> None:
    """Return free memory to the operating system in every idle period that follows some work, until cancelled.

    A burst of large requests leaves fragmented free memory, which the allocator keeps: it looks like a leak. Does
    nothing without `malloc_trim`.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    last_cpu_s = trimmed_cpu_s = time.process_time()
    while malloc_trim is not None:
        await asyncio.sleep(IDLE_WINDOW_S)
        cpu_s = time.process_time()
        if cpu_s - last_cpu_s < MAX_IDLE_CPU_S < cpu_s - trimmed_cpu_s:
            gc.collect()
            await asyncio.to_thread(malloc_trim, 0)
            trimmed_cpu_s = time.process_time()
        last_cpu_s = cpu_s
