"""Adapting to one demonstration: it is learned, views and steps are added, the given model stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from sprites import episode, episodes

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.hops import true_progress
from embodied_rm.metrics import voc
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.ood import EmbeddingDistribution
from embodied_rm.models.scoring import score_episodes
from embodied_rm.models.warm_start import warm_start
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.train import CHECKPOINT_DIR, TrainConfig, fit, make_net
from embodied_rm.train.adaptation import AdaptConfig, adapt
from embodied_rm.types import Episode, Subtask

CONFIG = AdaptConfig(image_size=(32, 32), max_seconds=None, steps=60, batch_size=4, frames_per_episode=6)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def annotated(number: int, **about) -> Episode:
    """A success whose progress is known from its annotated steps only."""
    return replace(episode(number, length=40), **{"progress": None, "success": None, **about})


def test_one_demonstration_is_enough_to_order_another(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    net = adapt(annotated(0), CONFIG, run, NullReporter())
    unseen = annotated(2)
    judged = score_episodes(net, [unseen])[0]
    assert voc(judged.progress) > 0.9
    assert np.abs(judged.progress - true_progress(unseen)).mean() < 0.2
    assert load_progress_net(run.path / CHECKPOINT_DIR).config == net.config


def start_model():
    return make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval()


def test_a_model_is_extended_by_views_and_steps_and_not_changed_itself(tmp_path):
    start = start_model()
    before = {name: tensor.clone() for name, tensor in start.state_dict().items()}
    shown = annotated(0)
    steps = tuple(Subtask(name=f"s{i}", start=4 * i, end=4 * i + 4) for i in range(9))
    other = replace(shown, views={"wrist": shown.views["top"], "front": shown.views["front"]}, subtasks=steps)
    net = adapt(other, replace(CONFIG, steps=2), RunFolder.open(tmp_path / "run"), NullReporter(), start)
    assert net.config.views == ("front", "top", "wrist") and net.config.max_subtasks == 9
    assert net.config.encoder == start.config.encoder
    assert all(torch.equal(tensor, before[name]) for name, tensor in start.state_dict().items())
    assert score_episodes(net, [other])[0].valid.all()


def test_what_was_calibrated_does_not_outlive_the_weights():
    start = start_model()
    states = torch.randn(2, 200, start.config.width)
    known = start.with_calibration(EmbeddingDistribution.fit(*states), 0.8, 2.0)
    net = warm_start(known, start)
    assert net.capabilities.interval_scale is None and net.config.median_ood is None and net.heads.distribution is None


def test_an_extended_model_judges_what_it_knows_as_before():
    start = start_model()
    more = make_net([replace(episode(1), views={"wrist": episode(1).views["top"]})], TrainConfig(image_size=(32, 32)))
    tried = episodes(3)
    for one, other in zip(
        score_episodes(start, tried), score_episodes(warm_start(start, more).eval(), tried), strict=True
    ):
        np.testing.assert_allclose(one.progress, other.progress, atol=1e-6)
        np.testing.assert_array_equal(one.subtask, other.subtask)


def test_a_failed_or_unannotated_demonstration_is_refused(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(UserError, match="must succeed"):
        adapt(episode(1, success=False), CONFIG, run, NullReporter())
    with pytest.raises(DataError, match="neither annotated steps nor progress"):
        adapt(annotated(0, steps=()), CONFIG, run, NullReporter())


def test_a_model_that_rehearses_forgets_less(tmp_path):
    """The old task is judged by a model that then learns the same videos backwards, with and without the old ones."""
    old = [episode(i) for i in range(8)]
    start = make_net(old, TrainConfig(image_size=(32, 32)))
    fit(start, old, replace(CONFIG, steps=60), RunFolder.open(tmp_path / "start"), NullReporter())
    shown, unseen, errors = annotated(3, instruction="put the square back", meta={"task": "return"}), episode(20), {}
    new = replace(shown, views={name: frames[::-1].copy() for name, frames in shown.views.items()})
    for name, rehearsed in (("alone", []), ("rehearsed", old)):
        net = adapt(new, CONFIG, RunFolder.open(tmp_path / name), NullReporter(), start, rehearsed)
        errors[name] = np.abs(score_episodes(net, [unseen])[0].progress - unseen.progress).mean()
    assert errors["rehearsed"] < errors["alone"]


def test_sight_may_stay_as_it_is(tmp_path):
    start, config = start_model(), replace(CONFIG, steps=2, train_image_encoder=False)
    reworded = replace(annotated(0), instruction="carry it")
    net = adapt(
        annotated(0), config, RunFolder.open(tmp_path / "run"), NullReporter(), start, other_demonstrations=[reworded]
    )
    before, changed = start.state_dict(), {n for n, t in net.state_dict().items() if not t.equal(start.state_dict()[n])}
    eyes = {name for name in before if name.startswith(("encoder.clip.visual", "view_token"))}
    assert eyes and not eyes & changed and any(name.startswith("heads") for name in changed)
    assert read_manifest(tmp_path / "run" / CHECKPOINT_DIR)["facts"]["episodes"] == 1
