"""Clone a policy from a few demonstrations, and refine it by PPO on the reward of the service alone.

    embodied-rm serve checkpoint=runs/metaworld/drawer-open-v3/20_demonstrations_40_failures
    MUJOCO_GL=egl LP_NUM_THREADS=0 python refine.py drawer-open-v3 --out runs/metaworld/drawer-open-v3/refine

Runs in Meta-World's environment (metaworld, stable-baselines3, embodied-rm-client). Its success is looked at
before and after, and is never paid.
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
from films import TAIL, Film, begin_recordings
from metaworld.policies import ENV_POLICY_MAP
from scene import EVERY, INSTRUCTIONS
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from worlds import LIMIT, Rows, World, look, make_worlds

from embodied_rm.serve.client.episodes import Shaping
from embodied_rm.serve.client.learned_reward import LearnedReward
from embodied_rm.serve.client.reward_client import RewardClient

GAMMA = 0.98
GUIDANCE = 0.1
"""How much the potential tells the future at first, as in docs/refinement.md, falling to 0: a learner that discounts by
less than the reward is shaped for is paid for progress (HuRL)."""
SEEN, UNSEEN = 0, 1
"""Seeds of the goals that are trained on, and of those that judge."""
EVERY_FIFTH = 5
"""Iterations between two looks at the mean action's success, and between two recordings."""
FILMS = 10
"""Attempts that are recorded at a time."""
WARM_UP = 2
"""Iterations in which only the critic learns."""


class Normalised(torch.nn.Module):
    """Observations as the demonstrations have them, mean 0 and deviation 1: fixed features for a policy."""

    def __init__(self, observations: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", observations.mean(0))
        # What never varies in demonstrations may vary later: not by more than 5 cm may count as one deviation.
        self.register_buffer("scale", observations.std(0).clamp(min=0.05))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """[N, D] -> [N, D]."""
        return ((observations.flatten(1) - self.mean) / self.scale).clamp(-10, 10)


def demonstrations(world: World, task: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What the expert saw and did, [N, D] and [N, 4], in `count` successes."""
    expert, saw, did = ENV_POLICY_MAP[task](), [], []
    goal = found = 0
    while found < count:
        observation, _ = world.reset(seed=goal, options={"goal": goal % 50})
        films, held = [], 0
        for _ in range(LIMIT):
            action = np.clip(expert.get_action(world.raw), -1, 1).astype(np.float32)
            films.append((observation, action))
            observation, _, _, _, info = world.step(action)
            held = held + 1 if info["success"] else 0
            if held == 5:
                break
        goal += 1
        if held == 5:
            found += 1
            saw += [o for o, _ in films]
            did += [a for _, a in films]
    return torch.tensor(np.array(saw)), torch.tensor(np.array(did))


def clone(learner: PPO, saw: torch.Tensor, did: torch.Tensor, steps: int, seed: int) -> None:
    """Fit the mean action."""
    policy = learner.policy
    policy.features_extractor.normalised = Normalised(saw)
    generator = torch.Generator().manual_seed(seed)
    fitted = [*policy.mlp_extractor.policy_net.parameters(), *policy.action_net.parameters()]
    optimiser = torch.optim.Adam(fitted, lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(saw), (256,), generator=generator)
        mean = policy.action_net(policy.mlp_extractor.forward_actor(policy.extract_features(saw[rows])))
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(mean, did[rows]).backward()
        optimiser.step()


def success(learner: PPO, world: World, episodes: int) -> float:
    """Share of episodes in which Meta-World's success came true, of the mean action; every goal as often."""
    came = 0
    for episode in range(episodes):
        observation, _ = world.reset(seed=episode, options={"goal": episode % len(world.scene.goals)})
        for _ in range(LIMIT):
            observation, _, _, _, info = world.step(learner.predict(observation, deterministic=True)[0])
            if info["success"]:
                came += 1
                break
    return came / episodes


def attempt(learner: PPO, world: World, seed: int) -> Film:
    """A film of an episode with noise, as in training, until success has been held or time is over."""
    observation, _ = world.reset(seed=seed)
    film, held = Film(world.scene, world.raw), 0
    for _ in range(LIMIT):
        observation, _, _, _, info = world.step(learner.predict(observation)[0])
        film.add(world.scene, world.raw, info)
        held = held + 1 if info["success"] else 0
        if held * EVERY >= TAIL:
            break
    return film


class Watch(BaseCallback):
    """Lets the critic learn alone at first, lets guidance fall, and writes a row after every iteration."""

    def __init__(self, rows: Rows, world: World, shown: World, args: argparse.Namespace) -> None:
        """`world` has the goals that judge, `shown` those that are trained on."""
        super().__init__()
        self.rows, self.world, self.shown, self.args = rows, world, shown, args
        self.path = args.out / "progress.jsonl"
        self.path.unlink(missing_ok=True)
        self.iteration, self.started = 0, time.monotonic()
        if args.films is not None:
            begin_recordings(args.films, shown.scene)

    def _on_rollout_start(self) -> None:
        actor = [*self.model.policy.mlp_extractor.policy_net.parameters(), *self.model.policy.action_net.parameters()]
        for parameter in (*actor, self.model.policy.log_std):
            parameter.requires_grad_(self.iteration >= WARM_UP)
        guidance = GUIDANCE * (1 - self.iteration / self.args.iterations)
        self.model.gamma = self.model.rollout_buffer.gamma = GAMMA * (1 - guidance)

    def _on_rollout_end(self) -> None:
        ended, self.rows.ended = self.rows.ended, []
        row: dict[str, Any] = {"iteration": self.iteration, "episodes": len(ended)}
        for who in ("model", "simulator", "height"):
            row[who] = round(float(np.mean([episode[who] for episode in ended])), 3) if ended else None
        if self.iteration % EVERY_FIFTH == 0:
            row["watched"] = success(self.model, self.world, 25)
            if self.args.films is not None:
                self._record()
        row["seconds"] = round(time.monotonic() - self.started)
        line = json.dumps(row)
        print(line, flush=True)
        with self.path.open("a") as stream:
            stream.write(line + "\n")
        self.iteration += 1

    def _record(self) -> None:
        """Films of attempts, but of those in which success came and went."""
        for number in range(FILMS * self.iteration, FILMS * self.iteration + FILMS):
            film = attempt(self.model, self.shown, number)
            if film.done[-1] or not any(film.done):
                film.write(self.args.films / f"attempt_{number:04d}")

    def _on_step(self) -> bool:
        return True


class Features(torch.nn.Module):
    """Stable-Baselines3's features of an observation: normalised as soon as it is known how."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        self.features_dim = observation_space.shape[0]
        self.normalised: torch.nn.Module = torch.nn.Flatten()

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """[N, D] -> [N, D]."""
        return self.normalised(observations)


def make_learner(rows: Any, args: argparse.Namespace) -> PPO:
    """PPO that begins near what was cloned, and stays near what it last did."""
    return PPO(
        "MlpPolicy",
        rows,
        learning_rate=args.lr,
        n_steps=LIMIT,
        batch_size=LIMIT * args.worlds // 4,
        n_epochs=10,
        gamma=GAMMA,
        gae_lambda=0.95,
        target_kl=0.1,
        policy_kwargs={
            "log_std_init": args.log_std,
            "net_arch": {"pi": [128, 128], "vf": [128, 128]},
            "features_extractor_class": Features,
        },
        seed=args.seed,
        device="cpu",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=INSTRUCTIONS)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--demonstrations", type=int, default=1)
    parser.add_argument("--clone-steps", type=int, default=1000)
    parser.add_argument("--worlds", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=100, help="that judge a policy")
    parser.add_argument("--log-std", type=float, default=-1.0, help="exploration noise, log")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--films", type=Path, help="folder for films of attempts, with what Meta-World said of them")
    args = parser.parse_args()
    if (args.out / "metrics.json").exists():
        print((args.out / "metrics.json").read_text())
        return
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    client = RewardClient(args.url, patience=600)
    worlds = LearnedReward(
        make_worlds(args.task, args.worlds, SEEN),
        client,
        Shaping(gamma=GAMMA, score_every=4, success_patience=2),
        views=look,
        instructions=INSTRUCTIONS[args.task],
        success="model",
    )
    rows = Rows(worlds, args.seed)
    learner = make_learner(rows, args)
    shown, world = World(args.task, SEEN), World(args.task, UNSEEN)
    clone(learner, *demonstrations(shown, args.task, args.demonstrations), args.clone_steps, args.seed)
    before = success(learner, world, args.episodes)
    print(f"{args.task}: cloned {before:.2f}", flush=True)
    learner.learn(args.iterations * LIMIT * args.worlds, callback=Watch(rows, world, shown, args))
    after = success(learner, world, args.episodes)
    told = {**vars(args), "cloned": before, "refined": after}
    (args.out / "metrics.json").write_text(json.dumps(told, indent=1, default=str) + "\n")
    print(f"{args.task}: cloned {before:.2f}, refined {after:.2f}", flush=True)
    for each in (rows, world, shown):
        each.close()


if __name__ == "__main__":
    main()
