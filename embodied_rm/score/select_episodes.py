"""Which episodes of a scored dataset are good: by the last prediction of their success and progress."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from embodied_rm.data.score_table import read_scores, split_episodes
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError, UserError
from embodied_rm.score.write_scores import COLUMN_BY_FIELD, TABLE_FILE, prediction_from_table
from embodied_rm.types import RewardOutput

SELECTED_COLUMNS = ("index", *COLUMN_BY_FIELD.values())


@dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """Which episodes are good."""

    min_success: float | None = 0.5
    min_progress: float = 0.0
    best_fraction: float = 1.0

    def __post_init__(self) -> None:
        for name in ("min_success", "min_progress"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise UserError(f"{name} must be in [0, 1], got {value}")
        if not 0 < self.best_fraction <= 1:
            raise UserError(f"best_fraction must be in (0, 1], got {self.best_fraction}")


@dataclass(frozen=True, kw_only=True)
class EpisodeSelection:
    """The last prediction of an episode, and why the episode is left out."""

    episode: str
    instruction: str
    progress: float | None = None
    """None: no frame has a score."""
    success: float | None = None
    """None: no frame has a score, or the model predicts no success."""
    reason: str | None = None
    """None: the episode is good."""


def read_predictions(run_folder: Path, meta: Sequence[EpisodeMeta]) -> dict[int, RewardOutput]:
    """Return row of the dataset -> the prediction of `embodied-rm score`, without episodes that were left out.

    Args:
        run_folder: Run folder of `embodied-rm score`.
        meta: Episodes of the dataset that was scored.

    Raises:
        UserError: The folder holds no scores, or those of another dataset.
    """
    path = run_folder / TABLE_FILE
    if not path.is_file():
        raise UserError(
            f"{run_folder} holds no {TABLE_FILE}: scores= is the run folder of a finished embodied-rm score"
        )
    rows = {episode.index_in_dataset(row): row for row, episode in enumerate(meta)}
    predictions: dict[int, RewardOutput] = {}
    for table in split_episodes(read_scores(path, SELECTED_COLUMNS)):
        index = table["episode_index"][0].as_py()
        row = rows.get(index)
        if row is None or meta[row].length != len(table):
            found = "no such episode" if row is None else f"{meta[row].length} frames"
            raise DataError(
                f"{path} is of another dataset: its episode {index} has {len(table)} frames, data has {found}"
            )
        predictions[row] = prediction_from_table(table)
    return predictions


def select_episodes(
    meta: Sequence[EpisodeMeta], predictions: Mapping[int, RewardOutput], config: SelectionConfig
) -> list[EpisodeSelection]:
    """Return for each episode whether it is good.

    The best fraction is taken per instruction, of the episodes that reach both minima, by progress, then by success. It
    is rounded up.

    Args:
        meta: Episodes of the dataset.
        predictions: Row -> the prediction of its frames.
        config: Minima and fraction.

    Raises:
        UserError: A minimum of success is set, and the model predicts none.
    """
    episodes = [compare_with_minima(episode, predictions.get(row), config) for row, episode in enumerate(meta)]
    rows_by_instruction = defaultdict(list)
    for row, episode in enumerate(episodes):
        if episode.reason is None:
            rows_by_instruction[episode.instruction].append(row)
    for rows in rows_by_instruction.values():
        rows.sort(key=lambda row: (episodes[row].progress, episodes[row].success or 0.0), reverse=True)
        for row in rows[math.ceil(config.best_fraction * len(rows)) :]:
            episodes[row] = replace(episodes[row], reason=f"not in the best {config.best_fraction:.0%} of its task")
    return episodes


def compare_with_minima(
    meta: EpisodeMeta, prediction: RewardOutput | None, config: SelectionConfig
) -> EpisodeSelection:
    """Return the last prediction of an episode, and which minimum it misses."""
    selection = EpisodeSelection(episode=meta.name, instruction=meta.instruction)
    if prediction is None or not prediction.valid.any():
        return replace(selection, reason="no frame has a score")
    progress, success = float(prediction.progress[-1]), float(prediction.success[-1])
    selection = replace(selection, progress=progress, success=None if math.isnan(success) else success)
    if config.min_success is not None and selection.success is None:
        raise UserError("this model predicts no success: set min_success=null and min_progress=, for example to 0.9")
    if config.min_success is not None and success < config.min_success:
        return replace(selection, reason=f"success {success:.3f} < {config.min_success}")
    if progress < config.min_progress:
        return replace(selection, reason=f"progress {progress:.3f} < {config.min_progress}")
    return selection
