"""A loaded model with its only thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from embodied_rm.models.subgoal_state import SubgoalState
from embodied_rm.models.subgoals import SubgoalRewardModel

SELF_TEST_FAILED_MESSAGE = "the model failed its self-test: its predictions differ from those in its checkpoint"


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """Metadata of a served model."""

    name: str
    version: str
    """Digest of everything that decides its predictions."""
    views: tuple[str, ...] | None
    """View names of the model; None: any."""
    image_size: tuple[int, int] | None
    """Height and width of its input; None: any."""
    predicts_success: bool
    supports_restore: bool
    """Whether the state of episodes can be returned and restored."""
    passed_self_test: bool
    """Whether its predictions on fixed images equal those stored with the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class ModelHandle:
    """A loaded model."""

    model: SubgoalRewardModel
    metadata: ModelMetadata
    example_state: SubgoalState
    """A state of this model, against which states from clients are validated."""
    executor: ThreadPoolExecutor = field(repr=False)
    """Single worker in which the model is loaded and runs. With a second OpenMP thread pool, OpenMP assumes
    oversubscription and lets threads sleep between operations: inference was measured to take 1.5 times as long."""


def load_in_thread(load_model: Callable[[], tuple[SubgoalRewardModel, ModelMetadata, SubgoalState]]) -> ModelHandle:
    """Load a model in a new thread."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="inference")
    model, metadata, example_state = executor.submit(load_model).result()
    torch.set_num_threads(1)  # for this thread and later ones, which only take rows from states
    return ModelHandle(model=model, metadata=metadata, example_state=example_state, executor=executor)
