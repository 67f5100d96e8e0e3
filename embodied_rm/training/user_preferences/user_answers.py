"""Answers of several users about clips of a dataset: tensors of their frames, split by episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from embodied_rm.errors import DataError
from embodied_rm.labels.comparisons import Clip, ClipComparison
from embodied_rm.training.user_preferences.user_reward_net import ClipPairs
from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class UserAnswers:
    """The answers of one user."""

    train: ClipPairs
    held_out: ClipPairs  # of episodes that no pair of training has
    is_conflict: Tensor  # bool [B], whether another user answered that held-out pair in the other way


def make_user_answers(
    comparisons: Mapping[str, Sequence[ClipComparison]],
    frames: Mapping[str, Array],
    held_out_share: float,
    minimum: int,
    seed: int,
) -> dict[str, UserAnswers]:
    """Split the answers of each user by episode. Pairs of a training and a held-out episode are left out.

    Args:
        comparisons: Name of each user -> their comparisons; undecided ones are left out.
        frames: Name of each episode -> its frames, float32 [T, D].
        held_out_share: Share of the episodes that are held out.
        minimum: Answers that a user must have in each part.
        seed: Of the split.

    Raises:
        DataError: A table has comparisons of other episodes, or a user has too few answers.
    """
    names = sorted(frames)
    drawn = np.random.default_rng(seed).permutation(len(names))[: round(held_out_share * len(names))]
    held_out = {names[row] for row in drawn}
    answers: dict[tuple[Clip, Clip], set[str]] = {}
    for comparison in (c for table in comparisons.values() for c in table if c.is_decided):
        answers.setdefault((comparison.first, comparison.second), set()).add(comparison.answer)
    users = {}
    for user, table in comparisons.items():
        decided = [comparison for comparison in table if comparison.is_decided]
        if unknown := {clip.episode for c in decided for clip in (c.first, c.second)} - frames.keys():
            raise DataError(f"{user}: its comparisons are of other data: there is no episode {min(unknown)}")
        count = [(c, sum(clip.episode in held_out for clip in (c.first, c.second))) for c in decided]
        train, unseen = ([c for c, found in count if found == number] for number in (0, 2))
        if min(len(train), len(unseen)) < minimum:
            raise DataError(
                f"{user}: {len(train)} answers for training and {len(unseen)} about held-out episodes, of "
                f"{len(decided)}; at least {minimum} of each are needed: compare more pairs, or change held_out_share"
            )
        is_conflict = torch.tensor([len(answers[c.first, c.second]) > 1 for c in unseen])
        parts = make_clip_pairs(train, frames), make_clip_pairs(unseen, frames)
        users[user] = UserAnswers(train=parts[0], held_out=parts[1], is_conflict=is_conflict)
    return users


def frame_vectors(name: str, state: Array | None, action: Array | None) -> Array:
    """Return the frames of an episode as rewards of users see them, float32 [T, S + A].

    Raises:
        DataError: State or action was not recorded.
    """
    if state is None or action is None:
        raise DataError(f"{name}: a reward of users depends on state and action, and not both were recorded")
    return np.concatenate([state, action], axis=1, dtype=np.float32)


def make_clip_pairs(comparisons: Sequence[ClipComparison], frames: Mapping[str, Array]) -> ClipPairs:
    """Return the frames of decided comparisons, the preferred clip first."""
    clips: list[Tensor] = []
    for comparison in comparisons:
        pair = (comparison.first, comparison.second)
        for clip in pair if comparison.answer == "first" else reversed(pair):
            episode = frames[clip.episode]
            clips.append(torch.from_numpy(episode[clip.frames(len(episode))]))
    padded = pad_sequence(clips, batch_first=True)
    lengths = torch.tensor([len(clip) for clip in clips])
    mask = (torch.arange(padded.shape[1]) < lengths[:, None]).float()
    return ClipPairs(frames=padded.unflatten(0, (-1, 2)), mask=mask.unflatten(0, (-1, 2)))
