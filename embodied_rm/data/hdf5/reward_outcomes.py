"""The outcome of demonstrations by their rewards of 0 and 1.

Recorders of human demonstrations write rewards and never set them (robocasa issue 165). So rewards that are all 0 mean
a failure only beside a reward of 1: in the same file, or in one of the same environment, as failures may have a file of
their own.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class RewardSummary:
    """The rewards of one demonstration."""

    file: Path
    environment: str  # description of the environment, equal in files that were recorded alike
    is_binary: bool  # whether all are 0 or 1
    is_any_1: bool
    is_last_1: bool
    is_stated: bool  # whether the demonstration states its success, which precedes that of its rewards


def summarize_rewards(rewards: Array, file: Path, environment: str, *, is_stated: bool) -> RewardSummary:
    """Summarize the rewards [T] of a demonstration, T > 0."""
    is_1 = rewards == 1.0
    return RewardSummary(
        file=file,
        environment=environment,
        is_binary=bool(np.isin(rewards, (0.0, 1.0)).all()),
        is_any_1=bool(is_1.any()),
        is_last_1=bool(is_1[-1]),
        is_stated=is_stated,
    )


def find_successes(demos: Mapping[int, RewardSummary]) -> dict[int, bool | None]:
    """Return whether the last reward of each demonstration is 1; None: its rewards do not say."""
    environments = _environments_with_rewards(demos.values())
    is_known = {key: demo.is_binary and demo.environment in environments for key, demo in demos.items()}
    return {key: demo.is_last_1 if is_known[key] else None for key, demo in demos.items()}


def describe_zero_files(demos: Collection[RewardSummary]) -> dict[str, list[Path]]:
    """Return the files whose rewards are 0 throughout, by a sentence on what that means for episodes without a success.

    A file whose demonstrations all state their success is not among them.
    """
    environments = _environments_with_rewards(demos)
    with_rewards = {demo.file for demo in demos if demo.is_any_1 or not demo.is_binary}
    stating = {demo.file for demo in demos if demo.is_stated}
    undecided = {demo.file: demo.environment for demo in demos if not demo.is_stated and demo.file not in with_rewards}
    files: dict[str, list[Path]] = {}
    for file, environment in undecided.items():
        episodes = "its episodes that state none" if file in stating else "its episodes"
        if environment in environments:
            sentence = f"every reward is 0, unlike in other files of its env_args: {episodes} are failures"
        else:
            sentence = f"every reward is 0, so the success of {episodes} is unknown"
        files.setdefault(sentence, []).append(file)
    return files


def _environments_with_rewards(demos: Iterable[RewardSummary]) -> set[str]:
    """Return the environments that give sparse rewards."""
    return {demo.environment for demo in demos if demo.is_binary and demo.is_any_1}
