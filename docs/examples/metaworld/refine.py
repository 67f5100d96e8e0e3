"""Clone a policy from a few demonstrations and fine-tune it with PPO on the reward of the service only.

    embodied-rm serve checkpoint=runs/metaworld/drawer-open-v3/20_demonstrations_40_failures
    MUJOCO_GL=egl LP_NUM_THREADS=0 python refine.py drawer-open-v3 --out runs/metaworld/drawer-open-v3/refine

Runs in Meta-World's Python environment (metaworld, stable-baselines3, embodied-rm-client). Meta-World's success is used
for evaluation only, never as a reward.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from embodied_rm_client import LearnedReward, RewardClient, ShapingConfig
from envs import MAX_EPISODE_STEPS, MetaWorldEnv, make_envs, render_views
from episode_recorder import SUCCESS_HOLD_STEPS, EpisodeRecorder, write_instruction
from metaworld.policies import ENV_POLICY_MAP
from sb3_vec_env import ResettingVecEnv
from scene import ACTION_REPEAT, TASK_INSTRUCTIONS
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

GAMMA = 0.98
INITIAL_HEURISTIC_COEF = 0.1
"""Initial weight of the potential as a heuristic value (HuRL, see docs/refinement.md); it decreases to 0. A learner
with a smaller discount than that of the shaping is rewarded for progress."""
TRAIN_GOAL_SEED, EVAL_GOAL_SEED = 0, 1
"""Seeds of the training goals and of the evaluation goals."""
EVAL_INTERVAL = 5
"""Iterations between evaluations of the mean action, and between recordings."""
NUM_VIDEOS = 10
"""Attempts per recording."""
CRITIC_WARMUP_ITERATIONS = 2
"""Iterations in which only the critic is trained."""


class ObservationNormalizer(torch.nn.Module):
    """Normalize observations to mean 0 and standard deviation 1 over the demonstrations."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, observations: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", observations.mean(0))
        # Constant dimensions of the demonstrations may vary later, so the scale is at least 5 cm.
        self.register_buffer("scale", observations.std(0).clamp(min=0.05))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Normalize observations [N, D]."""
        return ((observations.flatten(1) - self.mean) / self.scale).clamp(-10, 10)


def collect_demonstrations(env: MetaWorldEnv, task: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return observations [N, D] and actions [N, 4] of `count` successful episodes of the expert."""
    expert, observations, actions = ENV_POLICY_MAP[task](), [], []
    goal = num_successes = 0
    while num_successes < count:
        observation, _ = env.reset(seed=goal, options={"goal": goal % 50})
        transitions, success_steps = [], 0
        for _ in range(MAX_EPISODE_STEPS):
            action = np.clip(expert.get_action(env.raw_observation), -1, 1).astype(np.float32)
            transitions.append((observation, action))
            observation, _, _, _, info = env.step(action)
            success_steps = success_steps + 1 if info["success"] else 0
            if success_steps == 5:
                break
        goal += 1
        if success_steps == 5:
            num_successes += 1
            observations += [obs for obs, _ in transitions]
            actions += [act for _, act in transitions]
    return torch.tensor(np.array(observations)), torch.tensor(np.array(actions))


def clone_policy(model: PPO, observations: torch.Tensor, actions: torch.Tensor, num_steps: int, seed: int) -> None:
    """Fit the mean action to the demonstrations."""
    policy: Any = model.policy
    policy.features_extractor.normalized = ObservationNormalizer(observations)
    generator = torch.Generator().manual_seed(seed)
    parameters = [*policy.mlp_extractor.policy_net.parameters(), *policy.action_net.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for _ in range(num_steps):
        rows = torch.randint(len(observations), (256,), generator=generator)
        mean = policy.action_net(policy.mlp_extractor.forward_actor(policy.extract_features(observations[rows])))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(mean, actions[rows]).backward()
        optimizer.step()


def success_rate(model: PPO, env: MetaWorldEnv, num_episodes: int) -> float:
    """Return the success rate of the mean action; all goals occur equally often."""
    num_successes = 0
    for episode in range(num_episodes):
        observation, _ = env.reset(seed=episode, options={"goal": episode % len(env.scene.goals)})
        for _ in range(MAX_EPISODE_STEPS):
            observation, _, _, _, info = env.step(model.predict(observation, deterministic=True)[0])
            if info["success"]:
                num_successes += 1
                break
    return num_successes / num_episodes


def record_attempt(model: PPO, env: MetaWorldEnv, seed: int) -> EpisodeRecorder:
    """Record an episode with exploration noise, until success holds or time is over."""
    observation, _ = env.reset(seed=seed)
    recorder, success_steps = EpisodeRecorder(env.scene, env.raw_observation), 0
    for _ in range(MAX_EPISODE_STEPS):
        observation, _, _, _, info = env.step(model.predict(observation)[0])
        recorder.add(env.scene, env.raw_observation, info)
        success_steps = success_steps + 1 if info["success"] else 0
        if success_steps * ACTION_REPEAT >= SUCCESS_HOLD_STEPS:
            break
    return recorder


class TrainingCallback(BaseCallback):
    """Warm up the critic, decrease the heuristic coefficient and log a row per iteration."""

    model: PPO

    def __init__(
        self, vec_env: ResettingVecEnv, eval_env: MetaWorldEnv, train_env: MetaWorldEnv, args: argparse.Namespace
    ) -> None:
        """Store the environments; `eval_env` has the evaluation goals, `train_env` the training goals."""
        super().__init__()
        self.vec_env, self.eval_env, self.train_env, self.args = vec_env, eval_env, train_env, args
        self.path = args.out / "progress.jsonl"
        self.path.unlink(missing_ok=True)
        self.iteration, self.start_time = 0, time.monotonic()
        if args.videos is not None:
            write_instruction(args.videos, train_env.scene)

    def _on_rollout_start(self) -> None:
        policy: Any = self.model.policy
        actor = [*policy.mlp_extractor.policy_net.parameters(), *policy.action_net.parameters()]
        for parameter in (*actor, policy.log_std):
            parameter.requires_grad_(self.iteration >= CRITIC_WARMUP_ITERATIONS)
        heuristic_coef = INITIAL_HEURISTIC_COEF * (1 - self.iteration / self.args.iterations)
        self.model.gamma = self.model.rollout_buffer.gamma = GAMMA * (1 - heuristic_coef)

    def _on_rollout_end(self) -> None:
        finished_episodes, self.vec_env.finished_episodes = self.vec_env.finished_episodes, []
        row: dict[str, Any] = {"iteration": self.iteration, "episodes": len(finished_episodes)}
        for key in ("predicted_success", "simulator_success", "final_potential"):
            values = [episode[key] for episode in finished_episodes]
            row[key] = round(float(np.mean(values)), 3) if values else None
        if self.iteration % EVAL_INTERVAL == 0:
            row["eval_success"] = success_rate(self.model, self.eval_env, 25)
            if self.args.videos is not None:
                self._record()
        row["seconds"] = round(time.monotonic() - self.start_time)
        line = json.dumps(row)
        print(line, flush=True)
        with self.path.open("a") as stream:
            stream.write(line + "\n")
        self.iteration += 1

    def _record(self) -> None:
        """Write videos of attempts, except those whose success did not last."""
        for index in range(NUM_VIDEOS * self.iteration, NUM_VIDEOS * self.iteration + NUM_VIDEOS):
            recorder = record_attempt(self.model, self.train_env, index)
            if recorder.success[-1] or not any(recorder.success):
                recorder.write(self.args.videos / f"attempt_{index:04d}")

    def _on_step(self) -> bool:
        return True


class NormalizedFeatures(torch.nn.Module):
    """Features extractor of Stable-Baselines3; the identity until `normalized` is set."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        self.features_dim = observation_space.shape[0]
        self.normalized: torch.nn.Module = torch.nn.Flatten()

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return features [N, D] of observations [N, D]."""
        return self.normalized(observations)


def make_ppo(vec_env: Any, args: argparse.Namespace) -> PPO:
    """Create PPO with settings for a cloned policy."""
    return PPO(
        "MlpPolicy",
        vec_env,
        learning_rate=args.lr,
        n_steps=MAX_EPISODE_STEPS,
        batch_size=MAX_EPISODE_STEPS * args.num_envs // 4,
        n_epochs=10,
        gamma=GAMMA,
        gae_lambda=0.95,
        target_kl=0.1,
        policy_kwargs={
            "log_std_init": args.log_std,
            "net_arch": {"pi": [128, 128], "vf": [128, 128]},
            "features_extractor_class": NormalizedFeatures,
        },
        seed=args.seed,
        device="cpu",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=TASK_INSTRUCTIONS)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--demonstrations", type=int, default=1)
    parser.add_argument("--clone-steps", type=int, default=1000)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=100, help="evaluation episodes")
    parser.add_argument("--log-std", type=float, default=-1.0, help="log standard deviation of the exploration noise")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--videos", type=Path, help="folder for videos of attempts, labeled by Meta-World's success")
    args = parser.parse_args()
    if (args.out / "metrics.json").exists():
        print((args.out / "metrics.json").read_text())
        return
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    client = RewardClient(args.url, retry_timeout_s=600)
    reward_envs = LearnedReward(
        make_envs(args.task, args.num_envs, TRAIN_GOAL_SEED),
        client,
        ShapingConfig(gamma=GAMMA, score_every=4, success_patience=2),
        get_frames=render_views,
        instructions=TASK_INSTRUCTIONS[args.task],
        success_source="model",
    )
    vec_env = ResettingVecEnv(reward_envs, args.seed)
    model = make_ppo(vec_env, args)
    train_env, eval_env = MetaWorldEnv(args.task, TRAIN_GOAL_SEED), MetaWorldEnv(args.task, EVAL_GOAL_SEED)
    clone_policy(model, *collect_demonstrations(train_env, args.task, args.demonstrations), args.clone_steps, args.seed)
    cloned_success = success_rate(model, eval_env, args.episodes)
    print(f"{args.task}: cloned {cloned_success:.2f}", flush=True)
    model.learn(
        args.iterations * MAX_EPISODE_STEPS * args.num_envs,
        callback=TrainingCallback(vec_env, eval_env, train_env, args),
    )
    refined_success = success_rate(model, eval_env, args.episodes)
    metrics = {**vars(args), "cloned_success": cloned_success, "refined_success": refined_success}
    (args.out / "metrics.json").write_text(json.dumps(metrics, indent=1, default=str) + "\n")
    print(f"{args.task}: cloned {cloned_success:.2f}, refined {refined_success:.2f}", flush=True)
    for env in (vec_env, eval_env, train_env):
        env.close()


if __name__ == "__main__":
    main()
