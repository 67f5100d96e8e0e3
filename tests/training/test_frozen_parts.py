"""Image encoder, text encoder and heads are frozen apart, and a pretrained image encoder learns at its own rate."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
from sprites import episodes
from tiny_clip import save_tiny_clip

from embodied_rm.errors import UserError
from embodied_rm.models.encoders import EncoderConfig, small_encoder_config
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import TrainConfig, make_net, train
from embodied_rm.training.train_state import TrainState, parameter_part

EPISODES = episodes(3)
ONE_STEP = TrainConfig(steps=1, batch_size=2, frames_per_episode=3, image_size=(32, 32))


def moved_parts(before: ProgressNet, after: ProgressNet) -> dict[str, float]:
    """Part of the net -> largest change of a parameter."""
    moved = {"image": 0.0, "text": 0.0, "heads": 0.0}
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        part = parameter_part(name)
        moved[part] = max(moved[part], (old - new).abs().max().item())
    return moved


@pytest.mark.parametrize(("image", "text"), [(True, False), (False, True), (False, False)])
def test_a_frozen_part_does_not_move_and_the_others_do(image, text, tmp_path):
    config = TrainConfig(
        steps=2, batch_size=2, frames_per_episode=3, image_size=(32, 32), train_encoder=image, train_text_encoder=text
    )
    net = train(EPISODES, config, RunFolder.open(tmp_path / "run"), NullReporter())
    moved = moved_parts(make_net(EPISODES, config), net)
    assert (moved["image"] > 0, moved["text"] > 0, moved["heads"] > 0) == (image, text, True)


def test_frozen_parts_stay_in_eval_mode():
    """Their batch statistics and their dropout belong to their own training."""
    net = make_net(EPISODES, TrainConfig(image_size=(32, 32), train_encoder=False, train_text_encoder=True)).train()
    assert not net.encoder.clip.visual.training and net.encoder.clip.transformer.training
    net = make_net(EPISODES, TrainConfig(image_size=(32, 32), train_text_encoder=False)).train()
    assert net.encoder.clip.visual.training and not net.encoder.clip.transformer.training


@pytest.mark.parametrize("image_lr_scale", [1.0, 0.1])
def test_the_first_step_of_the_image_encoder_is_its_share_of_the_rate(image_lr_scale):
    """The first step of Adam is the learning rate in each parameter that has a gradient."""
    net = make_net(EPISODES, TrainConfig(image_size=(32, 32)))
    old = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    state = TrainState(net, weight_decay=0.0, image_lr_scale=image_lr_scale)
    state.update([sum(parameter.sum() for parameter in net.parameters())], learning_rate=1e-3)  # type: ignore[list-item]
    steps: dict[str, list[float]] = {"image": [], "text": [], "heads": []}
    for name, parameter in net.named_parameters():
        steps[parameter_part(name)].append((old[name] - parameter).abs().max().item())
    assert steps["image"] == pytest.approx([1e-3 * image_lr_scale] * len(steps["image"]), rel=0.01)
    assert max(steps["text"]) == pytest.approx(1e-4, rel=0.01)


def test_the_table_before_training_says_how_many_parameters_learn(tmp_path):
    tables: list[dict[str, object]] = []

    class Tables(NullReporter):
        def table(self, title, rows):
            tables.append(dict(rows))

    config = TrainConfig(
        steps=1,
        batch_size=2,
        frames_per_episode=3,
        image_size=(32, 32),
        train_encoder=False,
        train_text_encoder=False,
    )
    net = train(EPISODES, config, RunFolder.open(tmp_path / "run"), Tables())
    heads = sum(p.numel() for name, p in net.named_parameters() if parameter_part(name) == "heads")
    assert tables[0]["trained parameters"] == f"{heads:,}"
    assert tables[0]["parameters"] == f"{sum(p.numel() for p in net.parameters()):,}"


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(UserError, match="pretrained_lr_scale must be > 0, got 0"):
        TrainConfig(pretrained_lr_scale=0)


def test_pretrained_encoders_are_frozen_apart():
    config = TrainConfig(encoder="efficientnet_lite0", train_encoder=True, train_text_encoder=False)
    net = make_net(EPISODES, config)
    trained = {parameter_part(name) for name, p in net.named_parameters() if p.requires_grad}
    assert trained == {"image", "heads"}


def image_steps(config: TrainConfig, folder: Path, init_net: ProgressNet | None = None) -> float:
    """Largest step of the image encoder in one update of training."""
    start = make_net(EPISODES, config) if init_net is None else init_net
    before = copy.deepcopy(start)
    net = train(EPISODES, config, RunFolder.open(folder), NullReporter(), init_net=init_net)
    return moved_parts(before, net)["image"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"local-dir:{save_tiny_clip(tmp_path_factory.mktemp('clip'))}"


def test_training_scales_the_rate_of_a_pretrained_image_encoder_only(clip, tmp_path):
    whole = replace(ONE_STEP, encoder=clip, image_size=(32, 32), pretrained_lr_scale=1.0)
    full, scaled = (
        image_steps(replace(whole, pretrained_lr_scale=scale), tmp_path / str(scale)) for scale in (1.0, 0.1)
    )
    assert 0 < scaled < 0.2 * full
    random = [image_steps(replace(ONE_STEP, pretrained_lr_scale=s), tmp_path / f"random_{s}") for s in (1.0, 0.1)]
    assert random[0] == random[1] > 0


def test_a_model_that_is_trained_further_keeps_what_it_froze_and_the_rate_of_its_encoder(clip, tmp_path):
    frozen = make_net(EPISODES, replace(ONE_STEP, encoder=clip, image_size=(32, 32), train_encoder=False))
    assert image_steps(ONE_STEP, tmp_path / "frozen", frozen) == 0
    free = make_net(EPISODES, replace(ONE_STEP, encoder=clip, image_size=(32, 32)))
    assert image_steps(replace(ONE_STEP, train_encoder=False), tmp_path / "freeze", free) == 0
    full, scaled = (
        image_steps(replace(ONE_STEP, pretrained_lr_scale=scale), tmp_path / f"free_{scale}", free)
        for scale in (1.0, 0.1)
    )
    assert 0 < scaled < 0.2 * full


def test_the_text_encoder_is_frozen_with_the_image_encoder_unless_it_is_named():
    for image, text, expected in ((True, None, True), (False, None, False), (False, True, True), (True, False, False)):
        config = TrainConfig(image_size=(32, 32), train_encoder=image, train_text_encoder=text)
        assert make_net(EPISODES, config).encoder.config.trains_text == expected
    stored = dict(vars(small_encoder_config("patch_tower_tiny", (32, 32))))
    del stored["text_trainable"], stored["is_pretrained"]  # as earlier checkpoints have it
    assert not EncoderConfig(**stored | {"trainable": False}).trains_text
