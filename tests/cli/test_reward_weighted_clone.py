"""`embodied-rm clone reward_weighted=true`: what the reward model's scores say is what pairs weigh, by RA-BC's formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embodied_rm.cli.main import main
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.scoring import views_at
from embodied_rm.paths import DATASET_DIR, IMITATION_DIR, resolve_reward_model
from embodied_rm.rl.cloning.bc import CloneConfig, select_demonstrations
from embodied_rm.rl.learner.demo_pairs import DemoPairs, load_demo_pairs
from embodied_rm.types import Episode

HORIZON, SHOWN, SEED = 7, 3, 1
NEAR = 1e-4
"""Gains so near to a threshold may be on the other side of it: scores differ in the last digits by who is beside."""


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demos") / "run"
    words = ["collect", "tasks=[lift_cube]", "num_successes=2", "num_failures=2", f"out={folder}", "env.num_envs=4"]
    assert main(words) == 0
    return folder


def imitated(demos: Path, out: Path, *words: str) -> DemoPairs:
    sizes = ["steps=2", "eval_episodes=2", "env.num_envs=2", f"num_demonstrations={SHOWN}", f"progress_horizon={HORIZON}"]
    how = ["include_failures=true", "reward_weighted=true", f"seed={SEED}"]
    assert main(["clone", "task=lift_cube", f"data={demos}", *sizes, *how, *words, f"out={out}"]) == 0
    return load_demo_pairs(out / IMITATION_DIR)


@pytest.fixture(scope="module")
def saved(demos: Path) -> DemoPairs:
    return imitated(demos, demos.parent / "by_state")


@pytest.fixture(scope="module")
def chosen(demos: Path) -> list[Episode]:
    """The recordings that are imitated, as the bundled model sees them."""
    data, size = (
        open_dataset(demos / DATASET_DIR),
        load_progress_net(resolve_reward_model(None)).config.encoder.image_size,
    )
    rows = select_demonstrations(len(data), CloneConfig(num_demonstrations=SHOWN, seed=SEED))
    return [data.episode(row, views=("front", "wrist"), size=size) for row in rows]


@pytest.fixture(scope="module")
def gains(chosen: list[Episode]) -> list[list[float]]:
    """What each frame gains within the horizon, every image shown to the model by itself."""
    net = load_progress_net(resolve_reward_model(None))
    found = []
    for episode in chosen:
        memory, curve = net.reset(views_at([episode], 0), [episode.instruction]), [0.0]
        for t in range(1, len(episode)):
            judged, memory = net.step(memory, views_at([episode], t))
            curve.append(float(judged.progress[0]))
        found.append([curve[min(t + HORIZON, len(curve) - 1)] - now for t, now in enumerate(curve)])
    return found


def timesteps(episodes: list[Episode]) -> list[bytes]:
    """What was seen and done in each frame."""
    return [
        np.concatenate([s, a]).astype(np.float32).tobytes()
        for episode in episodes
        for s, a in zip(episode.state, episode.action, strict=True)
    ]


def test_pairs_weigh_what_the_models_scores_say_of_their_timestep(
    saved: DemoPairs, chosen: list[Episode], gains: list[list[float]]
) -> None:
    """RA-BC: 1 for a gain above 0.01, 0 for a loss, else clip((gain - (mean - 2 std)) / 4 std); no zeros are kept."""
    every = np.concatenate(gains)
    mean, std = every.mean(), every.std()
    seen = np.concatenate([saved.observation.numpy(), saved.action.numpy()], axis=1)
    weight = {pair.tobytes(): float(w) for pair, w in zip(seen, saved.weight, strict=True)}
    among = timesteps(chosen)
    assert len(set(among)) == len(among) and weight.keys() <= set(among), "nothing else is imitated"
    assert [m for m in among if m in weight] == [pair.tobytes() for pair in seen], "in the order of the recordings"
    kinds = {"gained": 0, "between": 0, "lost": 0}
    for timestep, gain in zip(among, every, strict=True):
        told = weight.get(timestep, 0.0)
        if min(abs(gain - 0.01), abs(gain) or 1.0) < NEAR:
            continue
        kind = "gained" if gain > 0.01 else "lost" if gain < 0 else "between"
        between = min(max((gain - (mean - 2 * std)) / (4 * std), 0.0), 1.0)
        assert told == pytest.approx({"gained": 1.0, "lost": 0.0, "between": between}[kind], abs=1e-3)
        kinds[kind] += 1
    assert min(kinds.values()) > 5 and sum(kinds.values()) > 0.9 * len(among), "each kind was met"


def test_what_counts_does_not_depend_on_what_the_policy_sees(demos: Path, saved: DemoPairs) -> None:
    """The model is shown all its views, the policy one of them."""
    seeing = imitated(demos, demos.parent / "by_views", "obs_mode=proprio+embeddings", "env.views=[wrist]")
    assert seeing.observation.shape != saved.observation.shape
    assert np.array_equal(seeing.weight, saved.weight) and np.array_equal(seeing.action, saved.action)
