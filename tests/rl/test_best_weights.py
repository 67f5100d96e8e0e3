"""The weights that are restored: known windows, a policy that is lost, and an interrupted run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rl_envs import ImageModel, PointReachEnv
from test_refine import CONFIG, SPEC, evaluate, weak_policy

from embodied_rm.rl.best_weights import BestWeights, best_window, iteration_to_restore, success_windows
from embodied_rm.rl.learner.policy import GaussianPolicy
from embodied_rm.rl.refine import RefineResult, refine
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.watch.log_rows import LogRow
from embodied_rm.run_folder import NullReporter, RunFolder

LIMIT = 50  # time limit of an episode, steps


def make_rows(rates: list[float], episodes: int = 20) -> list[LogRow]:
    """Iterations with whole episodes."""
    return [{"success": rate, "episodes": episodes, "env_steps": LIMIT * episodes} for rate in rates]


def test_a_lost_policy_is_noticed_and_noise_is_not() -> None:
    rising = [0.1, 0.2, 0.4, 0.5, 0.6, 0.6]
    assert best_window(make_rows(rising), LIMIT) == (5, 34, 60)
    assert iteration_to_restore(make_rows(rising), LIMIT) is None
    assert iteration_to_restore(make_rows([*rising, 0.5, 0.4, 0.5]), LIMIT) is None, "within noise"
    assert iteration_to_restore(make_rows([*rising, 0.3, 0.1, 0.0]), LIMIT) == 5
    assert iteration_to_restore(make_rows([*rising, 0.3, 0.1, 0.0], episodes=1), LIMIT) is None, "too few episodes"


def test_windows_are_of_the_same_model_and_have_episodes() -> None:
    rows = make_rows([0.9, 0.9, 0.9, 0.1, 0.1, 0.1])
    assert [window.iteration for window in success_windows(rows, LIMIT, first=3)] == [5]
    none = [{"success": None, "episodes": 0, "env_steps": 5}] * 4
    assert success_windows(none, LIMIT) == success_windows(none, None) == []
    assert best_window([], LIMIT) is None and iteration_to_restore([], LIMIT) is None


def test_a_window_whose_failures_end_later_is_not_the_best() -> None:
    """32 environments in step, of which rollouts have less than half an episode: 2 of 10 succeed, then none does."""
    starts = [{"success": 1.0, "episodes": 6, "env_steps": 640}, {"success": None, "episodes": 0, "env_steps": 640}]
    imitated = [*starts, {"success": 0.0, "episodes": 26, "env_steps": 640}]
    lucky = [
        {"success": 1.0, "episodes": 2, "env_steps": 640},
        *starts[1:],
        {"success": 1.0, "episodes": 1, "env_steps": 640},
    ]
    rows = [*imitated, *lucky, {"success": 0.0, "episodes": 29, "env_steps": 640}, *starts[1:] * 3]
    assert best_window(rows, None) == (5, 3, 3), "without a time limit"
    assert best_window(rows, LIMIT) == (2, 6, 38)


def test_weights_of_the_best_iteration_come_back_after_an_interruption(tmp_path: Path) -> None:
    run, rows = RunFolder(tmp_path), []
    rates, best = [0.2, 0.5, 0.8, 0.8, 0.8, 0.3, 0.1, 0.1], BestWeights(RunFolder(tmp_path), LIMIT, writes=True)
    for index in range(len(rates)):
        acted = GaussianPolicy(SPEC)
        acted.load_state_dict({name: torch.full_like(value, index) for name, value in acted.state_dict().items()})
        rows = make_rows(rates[: index + 1])
        best.keep(acted, rows)
    for kept in (best, BestWeights(run, LIMIT, writes=True)):
        restored = GaussianPolicy(SPEC)
        assert kept.restore(restored, rows) == 4
        assert all((value == 4).all() for value in restored.state_dict().values())


class WrongImagesEnv(PointReachEnv):
    """Images show more progress farther from the origin, so that training on them loses the policy."""

    def render_views(self, rows):
        frames = super().render_views(rows)
        frames[:, 0, 0, 0, 0] = 255 - frames[:, 0, 0, 0, 0]
        return frames


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, RefineResult]:
    """Refine on images that lose the policy, with and without its best weights."""
    ppo = replace(CONFIG.ppo, actor_learning_rate=3e-3, target_kl=1e9)
    reward = replace(CONFIG.reward, rule="raw", success_reward=0.0)
    config: RefineConfig = replace(CONFIG, ppo=ppo, reward=reward, bc_kl_coef=0.0, iterations=12, eval_episodes=0)
    results = {}
    for restores in (False, True):
        run = RunFolder(tmp_path_factory.mktemp("lost"))
        settings = replace(config, restore_best_weights=restores)
        envs = WrongImagesEnv(64)
        results[restores] = refine(envs, weak_policy(), ImageModel(), settings, run, NullReporter(), evaluate)
    return results


def test_a_policy_that_is_lost_is_restored(lost: dict[bool, RefineResult]) -> None:
    last, restored = lost[False], lost[True]
    assert last.refined_eval is not None and restored.refined_eval is not None and restored.cloned_eval is not None
    assert last.restored_iteration is None and restored.restored_iteration is not None
    assert last.refined_eval.rate < 0.5 * restored.cloned_eval.rate, "the setting is to lose the policy"
    assert restored.refined_eval.rate > 0.8 * restored.cloned_eval.rate
