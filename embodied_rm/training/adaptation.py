"""Adapt a reward model to one annotated demonstration, or train one on that demonstration alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.data.provenance import merge_provenance, provenance
from embodied_rm.errors import UserError
from embodied_rm.labels.targets import check_demonstration
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import resize_episode
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.training import CHECKPOINT_DIR, HELD_OUT_FILE, Execution, HeldOut, TrainConfig, fit, make_net
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.held_out import HeldOutCurve
from embodied_rm.training.run_training import add_curve, check_held_out, index_fingerprints, warm_start
from embodied_rm.types import Episode


@dataclass(frozen=True, kw_only=True)
class AdaptConfig(TrainConfig):
    """Configuration of adaptation. A single demonstration needs stronger image augmentation."""

    encoder: str = "stride_tower_tiny"
    image_size: tuple[int, int] = (72, 96)
    steps: int = 500
    batch_size: int = 8
    learning_rate: float = 1e-3
    augment: AugmentConfig = field(
        default_factory=lambda: AugmentConfig(
            shift=0.12, zoom=0.15, rotation=0.1, color_jitter=0.3, brightness_jitter=0.1, view_dropout_prob=0.3
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.comparisons is not None:
            raise UserError(
                "comparisons= are of several episodes, and adapt has one demonstration: use embodied-rm train"
            )


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What keeps a pretrained model from forgetting while it is adapted."""

    episodes: Sequence[Episode] = ()
    """Episodes of tasks that it knows. They fill half of every batch, which keeps failures and discriminative words."""
    negative_instructions: Sequence[str] = ()
    """Instructions that no demonstration fulfils."""


NO_REPLAY = Replay()


def adapt(
    demonstrations: Sequence[Episode],
    config: AdaptConfig,
    run: RunFolder,
    reporter: Reporter,
    init_net: ProgressNet | None = None,
    replay: Replay = NO_REPLAY,
    init_metadata: Mapping[str, Any] | None = None,
    held_out: HeldOut | None = None,
) -> ProgressNet:
    """Learn the task of demonstrations and save the model under `<run>/checkpoint`; return it in eval mode.

    Args:
        demonstrations: Episodes with annotated subtasks or progress (else `DataError`), also the same one with several
            instructions. The first one must not be known to have failed.
        init_net: Model to adapt, see `warm_start`. None: random weights.
        replay: What `init_net` must not forget.
        init_metadata: Provenance to which that of the episodes is added: of `init_net`, and of the dataset.
        held_out: Episodes that are not trained on (else `DataError`). The weights that score them best are kept, and
            `<run>/held_out.json` has the curve, as in `train`.
    """
    check_demonstration(demonstrations[0])
    fresh_net = make_net(demonstrations, config)
    net = fresh_net if init_net is None else warm_start(init_net, fresh_net)
    if init_net is not None and not config.train_encoder:
        net.view_token.requires_grad_(False)  # it is a part of what the image encoder sees
    execution = Execution()
    if held_out is not None:
        held_out = held_out.read()
        digest = check_held_out(held_out, *index_fingerprints([*demonstrations, *replay.episodes]))
        if held_out.config.eval_percent:
            execution = add_curve(execution, HeldOutCurve(net, held_out, reporter), digest)
    fit(net, demonstrations, config, run, reporter, replay.episodes, replay.negative_instructions, execution)
    if execution.held_out is not None:
        run.write_json(HELD_OUT_FILE, execution.held_out.summary())
    fingerprints = [fingerprint(episode) for episode in demonstrations]
    views, image_size = net.config.views, net.config.encoder.image_size
    resized_episodes = [resize_episode(e, views, image_size) for e in (*demonstrations, *replay.episodes)]
    data_provenance = merge_provenance(init_metadata or {}, provenance(resized_episodes))
    metadata = {"data_sha256": fingerprints[0], "episodes": len(set(fingerprints)), **data_provenance}
    save_progress_net(run.path / CHECKPOINT_DIR, net, metadata)
    return net
