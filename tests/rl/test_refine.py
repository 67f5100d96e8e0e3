"""Tests of refinement with known environments: improvement, resume, logs and evaluation."""

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
from embodied_rm.rl.refine import RefineResult, refine
from embodied_rm.rl.refine_checkpoint import ARCHITECTURE
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.stop_rules import has_converged
from embodied_rm.rl.watch.evaluate_policy import EVAL_SEED_STREAM, EvalResult, evaluate_policy, stream_seed
from embodied_rm.rl.watch.log_rows import training_episodes
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


def evaluate(policy: GaussianPolicy, episodes: int = 200) -> EvalResult:
    return evaluate_policy(PointReachEnv(64, ends_on_success=True), policy, episodes, seed=7)


def weak_policy() -> GaussianPolicy:
    """Return a policy cloned from skewed actions, which rarely reaches the origin."""
    rng = np.random.default_rng(0)
    state = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
    action = np.clip(-2 * state @ np.array([[0.6, 0.8], [-0.8, 0.6]]) + [0.5, 0.2], -1, 1).astype(np.float32)
    frames = {"front": np.zeros((400, 1, 1, 3), np.uint8)}
    episode = Episode(name="slanted", views=frames, instruction="", fps=20, state=state, action=action)
    return clone(make_demo_pairs([episode]), CloneConfig(num_demonstrations=1, steps=300, hidden_sizes=(32,)))[0]


def run_refine(folder: Path, config: RefineConfig = CONFIG, policy: GaussianPolicy | None = None) -> RefineResult:
    run = RunFolder.open(folder, resume=True)
    return refine(PointReachEnv(64), policy or weak_policy(), ImageModel(), config, run, NullReporter(), evaluate)


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RefineResult]:
    folder = tmp_path_factory.mktemp("refine")
    return folder, run_refine(folder)


def test_weak_policy_improves(refined: tuple[Path, RefineResult]) -> None:
    result = refined[1]
    assert result.cloned_eval.rate < 0.5
    assert result.refined_eval.rate > 0.95
    assert result.metrics()["iterations"] == CONFIG.iterations


def test_run_folder_has_rows_and_policy(refined: tuple[Path, RefineResult]) -> None:
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


def test_bc_penalty_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coefficients: list[float] = []
    update = PPO.update

    def record(self, batch, **kwargs):
        coefficients.append(kwargs["bc_kl_coef"])
        return update(self, batch, **kwargs)

    monkeypatch.setattr(PPO, "update", record)
    run_refine(tmp_path, replace(CONFIG, iterations=4, bc_kl_coef=0.8, critic_warmup_iterations=0))
    assert coefficients == pytest.approx([0.8, 0.6, 0.4, 0.2])


def test_simulator_reward_does_not_influence_learning(refined: tuple[Path, RefineResult], tmp_path: Path) -> None:
    """Wrong rewards and successes of the simulator do not change the learned weights."""

    class WrongSimulatorEnv(PointReachEnv):
        def step(self, actions):
            observation, _, terminated, truncated, infos = super().step(actions)
            infos["success"] = np.ones(self.num_envs, bool)
            return observation, np.full(self.num_envs, 1e9), terminated, truncated, infos

    short = replace(CONFIG, iterations=3)
    run_refine(tmp_path / "correct", short)
    refine(
        WrongSimulatorEnv(64),
        weak_policy(),
        ImageModel(),
        short,
        RunFolder.open(tmp_path / "wrong"),
        NullReporter(),
        evaluate,
    )
    correct, wrong = (load_tensors(tmp_path / name / "policy", "gaussian_policy")[0] for name in ("correct", "wrong"))
    assert all(torch.equal(correct[name], wrong[name]) for name in correct)


def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """All episodes start with an iteration, so that a restart loses none."""

    class SameStartEnv(PointReachEnv):
        """Each episode is as long as an iteration and has the same start."""

        def reset(self, *, seed=None, options=None):
            observation, infos = super().reset(seed=0, options=options)
            mask = self._mask(options)
            angle = np.linspace(0, 6, self.num_envs)[mask]
            self.position[mask] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
            return np.where(mask[:, None], self.position, observation).astype(np.float32), infos

    class InterruptedEnv(SameStartEnv):
        def step(self, actions):
            self.steps = getattr(self, "steps", 0) + 1
            if self.steps == 75:
                raise KeyboardInterrupt
            return super().step(actions)

    config = replace(CONFIG, iterations=5, reward=RewardConfig(success_patience=100))

    def play(env: PointReachEnv, folder: str) -> RefineResult:
        run = RunFolder.open(tmp_path / folder, resume=True)
        return refine(
            env, weak_policy(), ImageModel(), config, run, NullReporter(), lambda policy: evaluate(policy, 20)
        )

    uninterrupted = play(SameStartEnv(64), "uninterrupted")
    with pytest.raises(KeyboardInterrupt):
        play(InterruptedEnv(64), "resumed")
    resumed = play(SameStartEnv(64), "resumed")
    for key in ("iteration", "shaped_return", "kl", "critic_loss", "predicted_success"):
        assert [row[key] for row in resumed.log_rows] == [row[key] for row in uninterrupted.log_rows]
    assert resumed.cloned_eval == uninterrupted.cloned_eval and resumed.refined_eval == uninterrupted.refined_eval
    saved = [load_tensors(tmp_path / name / "checkpoint", ARCHITECTURE)[0] for name in ("uninterrupted", "resumed")]
    assert all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0])


def test_finished_run_is_not_trained_again(refined: tuple[Path, RefineResult]) -> None:
    folder, before = refined
    after = run_refine(folder)
    assert after.log_rows == before.log_rows and after.refined_eval == before.refined_eval


def test_checkpoint_of_another_network_raises(refined: tuple[Path, RefineResult]) -> None:
    with pytest.raises(UserError, match="was started with other episodes, or another policy"):
        run_refine(refined[0], policy=GaussianPolicy(replace(SPEC, hidden=(8, 8))))


def test_missing_rows_raise(tmp_path: Path) -> None:
    run_refine(tmp_path, replace(CONFIG, iterations=3))
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(CheckpointError, match=r"progress.jsonl: 2 rows, .* 3 iterations"):
        run_refine(tmp_path)


def test_stops_early_at_the_target_success() -> None:
    config = replace(CONFIG, stop_success=0.9, stop_patience=2, critic_warmup_iterations=1)

    def stops(*rates: float | None, partial_rollouts: int = 0, episodes: int = 15) -> bool:
        rows = [
            {"success": rate, "episodes": 0 if rate is None else episodes, "has_full_episodes": i >= partial_rollouts}
            for i, rate in enumerate(rates)
        ]
        return has_converged(rows, config)

    assert stops(0.0, 0.9, 1.0)
    assert not stops(1.0, 1.0)
    assert not stops(0.0, 1.0, 0.89)
    assert not stops(0.0, 1.0, None)
    assert not stops()
    assert not stops(0.0, 1.0, 1.0, partial_rollouts=2) and stops(0.0, 1.0, 1.0, 1.0, partial_rollouts=2), (
        "rollouts without full episodes do not count"
    )
    assert not stops(0.0, *[1.0] * 10, episodes=2), "20 episodes may all succeed by chance"
    assert stops(0.0, *[1.0] * 15, episodes=2) and not stops(0.0, 0.5, *[1.0] * 14, episodes=2)
    assert stops(0.0, 1.0, None, 1.0), "an iteration in which no episode ended says nothing"


def test_short_rollouts_without_their_failures_are_not_convergence() -> None:
    """Ten rollouts of two steps make an episode of twenty: failures of all environments end in every tenth."""
    config = replace(CONFIG, stop_patience=3, rollout_steps=2)
    failures, successes = ({"episodes": 20, "has_full_episodes": True, "success": rate} for rate in (0.1, 1.0))
    rows = [failures] * 2 + [failures, *[successes] * 9] * 2
    assert has_converged(rows, config) and not has_converged(rows, config, episode_iterations=10)
    assert has_converged([*rows, successes], config, episode_iterations=10)


def test_no_iteration_begins_after_the_budget_of_episodes(tmp_path: Path) -> None:
    config = replace(CONFIG, max_episodes=200)
    rows = run_refine(tmp_path, config).log_rows
    counts = np.cumsum([training_episodes(row) for row in rows])
    assert len(rows) < CONFIG.iterations and counts[-2] < 200 <= counts[-1]
    assert run_refine(tmp_path, config).log_rows == rows, "a resumed run has the same budget"


def test_a_budget_that_only_the_critic_sees_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"max_episodes=1 ended in the first . iterations, in which only the critic"):
        run_refine(tmp_path, replace(CONFIG, max_episodes=1, critic_warmup_iterations=2))


class Scripted(PointReachEnv):
    """Row i ends after i + 1 steps, with success in even episodes and divergence in every fourth."""

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
    ("rule", "message"),
    [
        ("self_reference", "rule=self_reference: .*whose states have embeddings"),
        ("sigmoid_reference", "rollout_steps=10.*may take 20 steps"),
    ],
)
def test_missing_rule_inputs_raise_before_the_run(rule: str, message: str, tmp_path: Path) -> None:
    config = RefineConfig(rollout_steps=10, reward=RewardConfig(rule=rule))

    def evaluate(policy: GaussianPolicy) -> EvalResult:
        raise AssertionError("no evaluation is expected")

    run = RunFolder.open(tmp_path)
    with pytest.raises(UserError, match=message):
        refine(PointReachEnv(4), GaussianPolicy(SPEC), ImageModel(), config, run, NullReporter(), evaluate)
    assert not list(tmp_path.iterdir())


class NoSuccessModel(ImageModel):
    """A model that does not predict success."""

    capabilities = Capabilities(predicts_success=False)

    def step(self, state, views):
        output, after = super().step(state, views)
        return replace(output, success=np.full(len(views), np.nan, np.float32)), after


class UndeclaredModel(NoSuccessModel):
    """The same with wrong capabilities."""

    capabilities = Capabilities()


@pytest.mark.parametrize(
    ("rule", "success", "message"),
    [
        ("shaped", "model", "set success_source=simulator"),
        ("hold", "simulator", "rule=hold needs a reward model .* choose another rule: blended, delta"),
        ("gated", "simulator", "rule=gated needs a reward model"),
    ],
)
@pytest.mark.parametrize("model", [NoSuccessModel(), UndeclaredModel()])
def test_model_without_success_prediction_raises_if_needed(model, rule, success, message, tmp_path) -> None:
    config = RefineConfig(rollout_steps=10, reward=RewardConfig(rule=rule, success_source=success))
    with pytest.raises(UserError, match=message):
        refine(
            PointReachEnv(4), GaussianPolicy(SPEC), model, config, RunFolder.open(tmp_path), NullReporter(), evaluate
        )
    assert not list(tmp_path.iterdir())


def test_model_without_success_prediction_can_shape(tmp_path: Path) -> None:
    config = RefineConfig(
        iterations=2, rollout_steps=10, critic_warmup_iterations=1, reward=RewardConfig(success_source="simulator")
    )
    run = RunFolder.open(tmp_path)
    result = refine(PointReachEnv(4), GaussianPolicy(SPEC), NoSuccessModel(), config, run, NullReporter(), evaluate)
    assert len(result.log_rows) == 2 and all(np.isfinite(row["uncertainty"]) for row in result.log_rows)


def test_evaluation_plays_fixed_episodes_per_row() -> None:
    """10 episodes in 3 rows: 4, 3 and 3. Episode 0 of each row is a success; episode 2 diverged."""
    result = evaluate_policy(Scripted(3), GaussianPolicy(SPEC), 10, seed=0)
    assert (result.successes, result.episodes, result.diverged_episodes) == (3, 10, 3)
    assert result.mean_steps == (4 * 1 + 3 * 2 + 3 * 3) / 10
    low, high = result.interval
    assert 0 < low < result.rate == 0.3 < high < 1


def test_evaluation_is_deterministic() -> None:
    assert evaluate(weak_policy(), 70) == evaluate(weak_policy(), 70)


def test_consecutive_seeds_have_different_episodes() -> None:
    seeds = []

    class SeedRecordingEnv(PointReachEnv):
        def reset(self, *, seed=None, options=None):
            seeds.extend([] if seed is None else [seed])
            return super().reset(seed=seed, options=options)

    for seed in range(20):
        evaluate_policy(SeedRecordingEnv(4), GaussianPolicy(SPEC), 4, seed)
    assert np.diff(np.sort(seeds)).min() >= 4, "row i of a vector environment draws from seed + i"


def test_evaluation_seeds_differ_from_recording_and_training() -> None:
    """Recordings (task and actor number) and iterations with the same seed use other streams."""
    for seed in range(5):
        output = stream_seed(seed, EVAL_SEED_STREAM)
        recorded = [stream_seed(seed, task, kind) for task in range(14) for kind in range(3)]
        trained = [stream_seed(seed, iteration) for iteration in range(1000)]
        assert min(abs(output - other) for other in (*recorded, *trained)) > 64, "of 64 environments"


def test_invalid_evaluations_raise() -> None:
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
        ("max_episodes", 0),
        ("bc_kl_coef", -1.0),
        ("imitation_coef", -1.0),
        ("heuristic_coef", 1.0),
        ("heuristic_off_at", 0.0),
    ],
)
def test_invalid_settings_raise(setting: str, value: float) -> None:
    with pytest.raises(UserError, match=setting):
        RefineConfig(**{setting: value})
