"""`embodied-rm clone reward_weighted=true`: pairs are weighted by predicted progress with the formula of RA-BC."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embodied_rm.cli.main import main
from embodied_rm.data.dataset_path import DATASET_DIR
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.scoring import views_at
from embodied_rm.paths import IMITATION_DIR, resolve_reward_model
from embodied_rm.rl.cloning.bc import CloneConfig, select_demonstrations
from embodied_rm.rl.learner.demo_pairs import DemoPairs, load_demo_pairs
from embodied_rm.types import Episode

HORIZON, NUM_DEMONSTRATIONS, SEED = 7, 3, 1
TOLERANCE = 1e-4
"""Gains this close to a threshold are skipped: the last digits of scores depend on the batch."""


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demos") / "run"
    args = ["collect", "tasks=[lift_cube]", "num_successes=2", "num_failures=2", f"out={folder}", "env.num_envs=4"]
    assert main(args) == 0
    return folder


def clone_pairs(demos: Path, out: Path, *args: str) -> DemoPairs:
    size_args = [
        "steps=2",
        "eval_episodes=2",
        "env.num_envs=2",
        f"num_demonstrations={NUM_DEMONSTRATIONS}",
        f"progress_horizon={HORIZON}",
    ]
    method_args = ["include_failures=true", "reward_weighted=true", f"seed={SEED}"]
    assert main(["clone", "task=lift_cube", f"data={demos}", *size_args, *method_args, *args, f"out={out}"]) == 0
    return load_demo_pairs(out / IMITATION_DIR)


@pytest.fixture(scope="module")
def saved(demos: Path) -> DemoPairs:
    return clone_pairs(demos, demos.parent / "by_state")


@pytest.fixture(scope="module")
def imitated_episodes(demos: Path) -> list[Episode]:
    """The recordings that are imitated, as the bundled model sees them."""
    data, size = (
        open_dataset(demos / DATASET_DIR),
        load_progress_net(resolve_reward_model(None)).config.encoder.image_size,
    )
    rows = select_demonstrations(len(data), CloneConfig(num_demonstrations=NUM_DEMONSTRATIONS, seed=SEED))
    return [data.episode(row, views=("front", "wrist"), size=size) for row in rows]


@pytest.fixture(scope="module")
def gains(imitated_episodes: list[Episode]) -> list[list[float]]:
    """Gain of predicted progress within the horizon per frame, with one model step per frame."""
    net = load_progress_net(resolve_reward_model(None))
    gains_per_episode = []
    for episode in imitated_episodes:
        memory, curve = net.reset(views_at([episode], 0), [episode.instruction]), [0.0]
        for t in range(1, len(episode)):
            outputs, memory = net.step(memory, views_at([episode], t))
            curve.append(float(outputs.progress[0]))
        gains_per_episode.append([curve[min(t + HORIZON, len(curve) - 1)] - now for t, now in enumerate(curve)])
    return gains_per_episode


def timesteps(episodes: list[Episode]) -> list[bytes]:
    """Return state and action of each frame as bytes."""
    return [
        np.concatenate([s, a]).astype(np.float32).tobytes()
        for episode in episodes
        for s, a in zip(episode.state, episode.action, strict=True)
    ]


def test_pairs_are_weighted_by_predicted_progress(
    saved: DemoPairs, imitated_episodes: list[Episode], gains: list[list[float]]
) -> None:
    """RA-BC: 1 for a gain above 0.01, 0 for a loss, else clip((gain - (mean - 2 std)) / 4 std); zeros are dropped."""
    all_gains = np.concatenate(gains)
    mean, std = all_gains.mean(), all_gains.std()
    pairs = np.concatenate([saved.observation.numpy(), saved.action.numpy()], axis=1)
    weight = {pair.tobytes(): float(w) for pair, w in zip(pairs, saved.weight, strict=True)}
    frames = timesteps(imitated_episodes)
    assert len(set(frames)) == len(frames) and weight.keys() <= set(frames), "only pairs of these episodes are imitated"
    assert [m for m in frames if m in weight] == [pair.tobytes() for pair in pairs], "in the order of the episodes"
    counts = {"gained": 0, "between": 0, "lost": 0}
    for timestep, gain in zip(frames, all_gains, strict=True):
        stored_weight = weight.get(timestep, 0.0)
        if min(abs(gain - 0.01), abs(gain) or 1.0) < TOLERANCE:
            continue
        kind = "gained" if gain > 0.01 else "lost" if gain < 0 else "between"
        between = min(max((gain - (mean - 2 * std)) / (4 * std), 0.0), 1.0)
        assert stored_weight == pytest.approx({"gained": 1.0, "lost": 0.0, "between": between}[kind], abs=1e-3)
        counts[kind] += 1
    assert min(counts.values()) > 5 and sum(counts.values()) > 0.9 * len(frames), "each kind occurs"


def test_weights_do_not_depend_on_the_observations_of_the_policy(demos: Path, saved: DemoPairs) -> None:
    """The model has all its views, the policy one of them."""
    embedding_pairs = clone_pairs(demos, demos.parent / "by_views", "obs_mode=proprio+embeddings", "env.views=[wrist]")
    assert embedding_pairs.observation.shape != saved.observation.shape
    assert np.array_equal(embedding_pairs.weight, saved.weight) and np.array_equal(embedding_pairs.action, saved.action)
