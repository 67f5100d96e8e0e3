"""A model that is served, and the one thread that it lives in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from embodied_rm.models.subgoal_state import SubgoalState
from embodied_rm.models.subgoals import SubgoalRewardModel

SELF_TEST_FAILED_MESSAGE = "the model does not judge as it did when it was made"


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """What a service says of its model."""

    name: str
    version: str
    """Digest of all that decides how it judges."""
    views: tuple[str, ...] | None
    """Those that it knows; None: it takes any."""
    image_size: tuple[int, int] | None
    """Height and width that it judges at; None: as they come."""
    predicts_success: bool
    supports_restore: bool
    """Whether the memory of episodes can be sent along, and back."""
    passed_self_test: bool
    """Whether it judged what it was tested with as it did when it was made."""


@dataclass(frozen=True, kw_only=True)
class ModelHandle:
    """What is served."""

    model: SubgoalRewardModel
    metadata: ModelMetadata
    example_state: SubgoalState
    """A memory of it, by which those that are sent back are looked at."""
    executor: ThreadPoolExecutor = field(repr=False)
    """Of one worker, in which the model was opened and everything of it happens. Where a second thread uses OpenMP its
    library thinks that the processors are overcommitted, and has all threads sleep between any two operations: that was
    measured to make judging half as slow again."""


def load_in_thread(load_model: Callable[[], tuple[SubgoalRewardModel, ModelMetadata, SubgoalState]]) -> ModelHandle:
    """Open a model in a thread of its own."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="inference")
    model, metadata, example_state = executor.submit(load_model).result()
    torch.set_num_threads(1)  # of this thread, which now and then takes rows out of a memory, and of later ones
    return ModelHandle(model=model, metadata=metadata, example_state=example_state, executor=executor)
