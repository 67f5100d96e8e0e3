"""Train a reward model from Python, with the defaults of `embodied-rm train`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_rm.api.build_config import build_config
from embodied_rm.api.progress_reward_model import ProgressRewardModel
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.data.source import EpisodeSource
from embodied_rm.models.encoders import resize_episode
from embodied_rm.run_folder import NullReporter, Reporter, open_kept_or_temporary
from embodied_rm.training.fitting import Execution, with_image_size_of_encoder
from embodied_rm.training.held_out import HeldOut, HeldOutConfig
from embodied_rm.training.run_training import CHECKPOINT_DIR
from embodied_rm.training.run_training import train as train_net
from embodied_rm.training.train_config import TrainConfig
from embodied_rm.types import Episode


def train(
    data: Iterable[Episode],
    *,
    init_from: ProgressRewardModel | None = None,
    held_out: Iterable[Episode] = (),
    eval_percent: float = HeldOutConfig.eval_percent,
    patience: int = HeldOutConfig.patience,
    device: str = "cpu",
    folder: str | Path | None = None,
    reporter: Reporter | None = None,
    **config: Any,
) -> ProgressRewardModel:
    """Train a reward model on episodes with known progress.

    Args:
        data: Episodes with annotated subtasks, or with a progress column.
        init_from: A model to continue from; its image tower, image size and fusion stay. It is not changed.
        held_out: Episodes that are not in `data`, and whose scenes are not in it either. The weights that score them
            best are kept.
        eval_percent: Percent of the training between two evaluations on `held_out`; 0: none, the last weights are kept.
        patience: Evaluations in a row without a new best after which training stops; 0: it never stops early.
        device: Device of the model in training: `cpu` or `cuda`. The trained model is on the CPU.
        folder: Run folder, for the checkpoint, the curve `held_out.json` and TensorBoard's file; a training that was
            interrupted there continues. None: nothing is kept on disk.
        reporter: Shows progress; None: nothing is shown.
        **config: Any field of `TrainConfig`, such as `steps=2000` or `image_size=(64, 64)`.

    Returns:
        The trained model.

    Raises:
        UserError: For an unknown key, a value that is out of range, or a GPU that torch does not find.
        DataError: When there are no episodes, none has known progress, or one is held out too.
    """
    train_config = build_config(TrainConfig, config)
    held_out_config = HeldOutConfig(eval_percent=eval_percent, patience=patience)
    with open_kept_or_temporary(folder) as run:
        if init_from is not None:
            train_config = replace(train_config, image_size=init_from.net.config.encoder.image_size)
        else:
            train_config = with_image_size_of_encoder(train_config)
        held_out_episodes = list(read_at_size(held_out, train_config.image_size))
        held_out_config.check_episodes(bool(held_out_episodes))
        net = train_net(
            read_at_size(data, train_config.image_size),
            train_config,
            run,
            reporter or NullReporter(),
            HeldOut(episodes=held_out_episodes, config=held_out_config) if held_out_episodes else None,
            init_net=None if init_from is None else init_from.net,
            init_metadata=None if init_from is None else init_from.metadata,
            execution=Execution(device=device),
        )
        return ProgressRewardModel(net, read_manifest(run.path / CHECKPOINT_DIR)["facts"])


def read_at_size(data: Iterable[Episode], size: tuple[int, int]) -> Iterator[Episode]:
    """Yield the episodes with every view at (height, width); a dataset resizes while it decodes."""
    if hasattr(data, "episode"):
        source: EpisodeSource = data  # type: ignore[assignment]
        yield from (source.episode(row, size=size) for row in range(len(source)))
        return
    for episode in data:
        yield resize_episode(episode, tuple(episode.views), size)
