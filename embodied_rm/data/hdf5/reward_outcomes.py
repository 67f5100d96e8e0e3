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


def summarize_rewards(rewards: Array, file: Path, environment: str) -> RewardSummary:
    """Summarize the rewards [T] of a demonstration, T > 0."""
    is_1 = rewards == 1.0
    return RewardSummary(
        file=file,
        environment=environment,
        is_binary=bool(np.isin(rewards, (0.0, 1.0)).all()),
        is_any_1=bool(is_1.any()),
        is_last_1=bool(is_1[-1]),
    )


def find_successes(demos: Mapping[int, RewardSummary]) -> dict[int, bool | None]:
    """Return whether the last reward of each demonstration is 1; None: its rewards do not say."""
    environments = _environments_with_rewards(demos.values())
    is_known = {key: demo.is_binary and demo.environment in environments for key, demo in demos.items()}
    return {key: demo.is_last_1 if is_known[key] else None for key, demo in demos.items()}


def describe_zero_files(demos: Collection[RewardSummary]) -> dict[str, list[Path]]:
    """Return the files whose rewards are 0 throughout, by a sentence on what that means."""
    environments = _environments_with_rewards(demos)
    with_rewards = {demo.file for demo in demos if demo.is_any_1 or not demo.is_binary}
    sentences = {
        False: "every reward is 0, so the success of its episodes is unknown",
        True: "every reward is 0, unlike in other files of its env_args: its episodes are failures",
    }
    files: dict[str, list[Path]] = {sentence: [] for sentence in sentences.values()}
    for file, environment in {demo.file: demo.environment for demo in demos if demo.file not in with_rewards}.items():
        files[sentences[environment in environments]].append(file)
    return files


def _environments_with_rewards(demos: Iterable[RewardSummary]) -> set[str]:
    """Return the environments that give sparse rewards."""
    return {demo.environment for demo in demos if demo.is_binary and demo.is_any_1}
