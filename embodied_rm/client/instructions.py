"""The instructions of N environments: one for all, one per row, or a function of the environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Union

Instructions = Union[str, Sequence[str], Callable[[Any], Sequence[str]]]
"""One instruction for all rows, one per row, or a function of the environment, called after a reset: one per row."""


def resolve_instructions(instructions: Instructions, env: Any, num_envs: int) -> Sequence[str]:
    """Return the instruction of each row."""
    if isinstance(instructions, str):
        return [instructions] * num_envs
    resolved = instructions(env) if callable(instructions) else instructions
    if len(resolved) != num_envs:
        raise ValueError(f"{num_envs} environments need {num_envs} instructions, got {len(resolved)}")
    return resolved
