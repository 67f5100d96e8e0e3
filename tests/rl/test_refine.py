"""Refinement on environments whose answer is known: it lifts a weak policy, resumes, reports, and judges honestly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from rl_envs import ImageModel, PointReachEnv

from embodied_rm.checkpoint_io import load_tensors
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.reward_model import Capabilities
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.cloning.bc import CloneConfig, clone
from embodied_rm.rl.learner.demo_pairs import make_demo_pairs
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec, load_policy
from embodied_rm.rl.learner.ppo import PPO, PPOConfig
from embodied_rm.rl.refine import RefineResult, has_converged, refine
from embodied_rm.rl.refine_checkpoint import ARCHITECTURE
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.seeds import stream_seed
from embodied_rm.rl.watch.evaluate_policy import EVAL_SEED_STREAM, EvalResult, evaluate_policy
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.types import Episode

CONFIG = RefineConfig(
    iterations=14,
    rollout_steps=20,
    critic_warmup_iterations=2,
    reward=RewardConfig(success_patience=4),
    ppo=PPOConfig(gamma=0.95, actor_learning_rate=1e-3, num_minibatches=8),
)
SPEC = PolicySpec(obs_dim=2, action_dim=2, hidden=(32,))


def judge(policy: GaussianPolicy, episodes: int = 200) -> EvalResult:
    return evaluate_policy(PointReachEnv(64, ends_on_success=True), policy, episodes, seed=7)


def weak_policy() -> GaussianPolicy:
    """Imitates somebody who walks off at a slant, and so reaches the origin rarely."""
    rng = np.random.default_rng(0)
    state = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
    action = np.clip(-2 * state @ np.array([[0.6, 0.8], [-0.8, 0.6]]) + [0.5, 0.2], -1, 1).astype(np.float32)
    frames = {"front": np.zeros((400, 1, 1, 3), np.uint8)}
    episode = Episode(name="slanted", views=frames, instruction="", fps=20, state=state, action=action)
    return clone(make_demo_pairs([episode]), CloneConfig(num_demonstrations=1, steps=300, hidden_sizes=(32,)))[0]


def run_refine(folder: Path, config: RefineConfig = CONFIG, policy: GaussianPolicy | None = None) -> RefineResult:
    run = RunFolder.open(folder, resume=True)
    return refine(PointReachEnv(64), policy or weak_policy(), ImageModel(), config, run, NullReporter(), judge)


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RefineResult]:
    folder = tmp_path_factory.mktemp("refine")
    return folder, run_refine(folder)


def test_a_weak_policy_becomes_a_good_one(refined: tuple[Path, RefineResult]) -> None:
    result = refined[1]
    assert result.cloned_eval.rate < 0.5
    assert result.refined_eval.rate > 0.95
    assert result.metrics()["iterations"] == CONFIG.iterations


def test_the_run_folder_tells_the_story(refined: tuple[Path, RefineResult]) -> None:
    folder, result = refined
    rows = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    assert rows == list(result.log_rows)
    assert [row["iteration"] for row in rows] == list(range(CONFIG.iterations))
    for row in rows:
        assert row["env_steps"] == 64 * CONFIG.rollout_steps
        assert row["invalid_rate"] == 0 and row["diverged_episodes"] == 0
        assert set(row["seconds"]) == {"physics", "render", "score", "act", "learn", "evaluate"}
    assert all(row["kl"] == 0 for row in rows[: CONFIG.critic_warmup_iterations])
    assert all(row["kl"] > 0 for row in rows[CONFIG.critic_warmup_iterations :])
    observation = np.random.default_rng(0).normal(size=(5, 2))
    assert np.array_equal(load_policy(folder / "policy").act(observation), result.policy.act(observation))


def test_the_imitated_policy_holds_on_less_and_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []
    update = PPO.update

    def noting(self, batch, **how):
        held.append(how["bc_kl_coef"])
        return update(self, batch, **how)

    monkeypatch.setattr(PPO, "update", noting)
    run_refine(tmp_path, replace(CONFIG, iterations=4, bc_kl_coef=0.8, critic_warmup_iterations=0))
    assert held == pytest.approx([0.8, 0.6, 0.4, 0.2])


def test_nothing_is_learned_from_the_simulator(refined: tuple[Path, RefineResult], tmp_path: Path) -> None:
    """The simulator's reward and success may say anything: not one number of the learning changes."""

    class Liar(PointReachEnv):
        def step(self, actions):
            observation, _, terminated, truncated, infos = super().step(actions)
            infos["success"] = np.ones(self.num_envs, bool)
            return observation, np.full(self.num_envs, 1e9), terminated, truncated, infos

    short = replace(CONFIG, iterations=3)
    run_refine(tmp_path / "honest", short)
    refine(Liar(64), weak_policy(), ImageModel(), short, RunFolder.open(tmp_path / "liar"), NullReporter(), judge)
    honest, liar = (load_tensors(tmp_path / name / "policy", "gaussian_policy")[0] for name in ("honest", "liar"))
    assert all(torch.equal(honest[name], liar[name]) for name in honest)


def test_an_interrupted_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Exactly, where the environment's episodes start at iteration boundaries: everything that learns is restored."""

    class Same(PointReachEnv):
        """Every episode is as long as an iteration and starts at the same place, so nothing is lost by a restart."""

        def reset(self, *, seed=None, options=None):
            observation, infos = super().reset(seed=0, options=options)
            mask = self._mask(options)
            angle = np.linspace(0, 6, self.num_envs)[mask]
            self.position[mask] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
            return np.where(mask[:, None], self.position, observation).astype(np.float32), infos

    class DiesLater(Same):
        def step(self, actions):
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps == 75:
                raise KeyboardInterrupt
            return super().step(actions)

    never = replace(CONFIG, iterations=5, reward=RewardConfig(success_patience=100))

    def play(env: PointReachEnv, folder: str) -> RefineResult:
        run = RunFolder.open(tmp_path / folder, resume=True)
        return refine(env, weak_policy(), ImageModel(), never, run, NullReporter(), lambda policy: judge(policy, 20))

    whole = play(Same(64), "whole")
    with pytest.raises(KeyboardInterrupt):
        play(DiesLater(64), "parts")
    parts = play(Same(64), "parts")
    for key in ("iteration", "shaped_return", "kl", "critic_loss", "predicted_success"):
        assert [row[key] for row in parts.log_rows] == [row[key] for row in whole.log_rows]
    assert parts.cloned_eval == whole.cloned_eval and parts.refined_eval == whole.refined_eval
    saved = [load_tensors(tmp_path / name / "checkpoint", ARCHITECTURE)[0] for name in ("whole", "parts")]
    assert all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0])


def test_a_finished_run_is_not_trained_again(refined: tuple[Path, RefineResult]) -> None:
    folder, before = refined
    after = run_refine(folder)
    assert after.log_rows == before.log_rows and after.refined_eval == before.refined_eval


def test_a_checkpoint_of_another_network_is_refused(refined: tuple[Path, RefineResult]) -> None:
    with pytest.raises(CheckpointError, match="checkpoint"):
        run_refine(refined[0], policy=GaussianPolicy(replace(SPEC, hidden=(8, 8))))


def test_rows_lost_from_the_progress_file_are_noticed(tmp_path: Path) -> None:
    run_refine(tmp_path, replace(CONFIG, iterations=3))
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(CheckpointError, match=r"progress.jsonl: 2 rows, .* 3 iterations"):
        run_refine(tmp_path)


def test_it_stops_when_the_model_is_satisfied() -> None:
    config = replace(CONFIG, stop_success=0.9, stop_patience=2, critic_warmup_iterations=1)

    def stops(*rates: float | None, unripe: int = 0) -> bool:
        return has_converged([{"success": rate, "has_full_episodes": i >= unripe} for i, rate in enumerate(rates)], config)

    assert stops(0.0, 0.9, 1.0)
    assert not stops(1.0, 1.0)
    assert not stops(0.0, 1.0, 0.89)
    assert not stops(0.0, 1.0, None)
    assert not stops()
    assert not stops(0.0, 1.0, 1.0, unripe=2) and stops(0.0, 1.0, 1.0, 1.0, unripe=2), "only successes can have ended"


class Scripted(PointReachEnv):
    """Row i ends after i + 1 steps; it succeeds in its even episodes and diverges in every fourth."""

    def reset(self, *, seed=None, options=None):
        mask = self._mask(options)
        self.played = np.zeros(self.num_envs, int) if seed is not None else self.played + mask
        return super().reset(seed=seed, options=options)

    def step(self, actions):
        observation, reward, *_ = super().step(actions)
        ended = self.count > np.arange(self.num_envs)
        diverged = ended & (self.played % 4 == 2)
        infos = {"diverged": diverged, "success": ended & (self.played % 2 == 0)}
        return observation, reward, ended, np.zeros_like(ended), infos


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("self_reference", "rule=self_reference: .*whose states have embeddings"),
        ("sigmoid_reference", "rollout_steps=10.*may take 20 steps"),
    ],
)
def test_a_rule_that_cannot_be_paid_says_so_before_anything_runs(rule: str, said: str, tmp_path: Path) -> None:
    config = RefineConfig(rollout_steps=10, reward=RewardConfig(rule=rule))

    def judge(policy: GaussianPolicy) -> EvalResult:
        raise AssertionError("nothing is judged")

    run = RunFolder.open(tmp_path)
    with pytest.raises(UserError, match=said):
        refine(PointReachEnv(4), GaussianPolicy(SPEC), ImageModel(), config, run, NullReporter(), judge)
    assert not list(tmp_path.iterdir())


class Wordless(ImageModel):
    """A model without a notion of "done"."""

    capabilities = Capabilities(predicts_success=False)

    def step(self, memory, views):
        judged, after = super().step(memory, views)
        return replace(judged, success=np.full(len(views), np.nan, np.float32)), after


class Undeclared(Wordless):
    """The same, which does not say so."""

    capabilities = Capabilities()


@pytest.mark.parametrize(
    ("rule", "success", "said"),
    [
        ("shaped", "model", "set success_source=simulator"),
        ("hold", "simulator", "rule=hold needs a reward model .* choose another rule: shaped, difference"),
        ("gated", "simulator", "rule=gated needs a reward model"),
    ],
)
@pytest.mark.parametrize("model", [Wordless(), Undeclared()])
def test_a_model_without_a_notion_of_done_is_refused_where_it_is_needed(model, rule, success, said, tmp_path) -> None:
    config = RefineConfig(rollout_steps=10, reward=RewardConfig(rule=rule, success_source=success))
    with pytest.raises(UserError, match=said):
        refine(PointReachEnv(4), GaussianPolicy(SPEC), model, config, RunFolder.open(tmp_path), NullReporter(), judge)
    assert not list(tmp_path.iterdir())


def test_a_model_without_a_notion_of_done_shapes(tmp_path: Path) -> None:
    config = RefineConfig(
        iterations=2, rollout_steps=10, critic_warmup_iterations=1, reward=RewardConfig(success_source="simulator")
    )
    run = RunFolder.open(tmp_path)
    done = refine(PointReachEnv(4), GaussianPolicy(SPEC), Wordless(), config, run, NullReporter(), judge)
    assert len(done.log_rows) == 2 and all(np.isfinite(row["uncertainty"]) for row in done.log_rows)


def test_every_row_plays_its_share_and_short_episodes_count_once() -> None:
    """10 episodes on 3 rows: 4, 3 and 3. Successes are episodes 0 and 2, but 2 diverged, so one a row."""
    verdict = evaluate_policy(Scripted(3), GaussianPolicy(SPEC), 10, seed=0)
    assert (verdict.successes, verdict.episodes, verdict.diverged_episodes) == (3, 10, 3)
    assert verdict.mean_steps == (4 * 1 + 3 * 2 + 3 * 3) / 10
    low, high = verdict.interval
    assert 0 < low < verdict.rate == 0.3 < high < 1


def test_evaluation_uses_the_mean_action_and_is_repeatable() -> None:
    assert judge(weak_policy(), 70) == judge(weak_policy(), 70)


def test_seeds_that_follow_each_other_are_judged_by_episodes_of_their_own() -> None:
    begun = []

    class Noting(PointReachEnv):
        def reset(self, *, seed=None, options=None):
            begun.extend([] if seed is None else [seed])
            return super().reset(seed=seed, options=options)

    for seed in range(20):
        evaluate_policy(Noting(4), GaussianPolicy(SPEC), 4, seed)
    assert np.diff(np.sort(begun)).min() >= 4, "row i of a vector environment draws from seed + i"


def test_no_policy_is_judged_by_episodes_that_it_was_shown_or_trained_on() -> None:
    """Recordings (task and kind of actor by number) and iterations of the same seed begin from other streams."""
    for seed in range(5):
        judged = stream_seed(seed, EVAL_SEED_STREAM)
        shown = [stream_seed(seed, task, kind) for task in range(14) for kind in range(3)]
        trained = [stream_seed(seed, iteration) for iteration in range(1000)]
        assert min(abs(judged - other) for other in (*shown, *trained)) > 64, "of 64 environments"


def test_evaluation_refuses_what_it_cannot_judge() -> None:
    env = PointReachEnv(2)
    with pytest.raises(UserError, match="episodes must be >= 1, got 0"):
        evaluate_policy(env, GaussianPolicy(SPEC), 0, seed=0)
    env.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    with pytest.raises(UserError, match=r"DISABLED, got .*SAME_STEP"):
        evaluate_policy(env, GaussianPolicy(SPEC), 1, seed=0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("iterations", 0),
        ("critic_warmup_iterations", 30),
        ("stop_success", 0.0),
        ("bc_kl_coef", -1.0),
        ("imitation_coef", -1.0),
        ("heuristic_coef", 1.0),
        ("heuristic_off_at", 0.0),
    ],
)
def test_settings_out_of_range_are_named(setting: str, value: float) -> None:
    with pytest.raises(UserError, match=setting):
        RefineConfig(**{setting: value})
