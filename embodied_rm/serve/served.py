"""A model that is served, and the one thread that it lives in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from embodied_rm.models.plan_memory import PlanMemory
from embodied_rm.models.plans import Plans

UNSOUND = "the model does not judge as it did when it was made"


@dataclass(frozen=True, kw_only=True)
class About:
    """What a service says of its model."""

    name: str
    version: str
    """Digest of all that decides how it judges."""
    views: tuple[str, ...] | None
    """Those that it knows; None: it takes any."""
    image_size: tuple[int, int] | None
    """Height and width that it judges at; None: as they come."""
    tells_success: bool
    storable: bool
    """Whether the memory of episodes can be sent along, and back."""
    sound: bool
    """Whether it judged what it was tested with as it did when it was made."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """What is served."""

    model: Plans
    about: About
    pattern: PlanMemory
    """A memory of it, by which those that are sent back are looked at."""
    thread: ThreadPoolExecutor = field(repr=False)
    """Of one worker, in which the model was opened and everything of it happens. Where a second thread uses OpenMP its
    library thinks that the processors are overcommitted, and has all threads sleep between any two operations: that was
    measured to make judging half as slow again."""


def serve_in_thread(opened: Callable[[], tuple[Plans, About, PlanMemory]]) -> Served:
    """Open a model in a thread of its own."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="judge")
    model, about, pattern = thread.submit(opened).result()
    torch.set_num_threads(1)  # of this thread, which now and then takes rows out of a memory, and of later ones
    return Served(model=model, about=about, pattern=pattern, thread=thread)
