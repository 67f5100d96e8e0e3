"""Test of the client's distribution in a clean virtual environment: python benchmarks/client_alone.py

Creates a virtual environment with the given Python, installs the client, numpy, httpx and gymnasium from the package
index, and computes rewards of a vector environment with a local service.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import tempfile
from pathlib import Path

from serving import HASH_SERVICE_COMMAND, run_service

CLIENT_DIR = Path(__file__).resolve().parent.parent / "embodied_rm" / "client"
CLIENT_SCRIPT = """
import sys
import gymnasium as gym
import numpy as np
from embodied_rm_client import LearnedReward, RewardClient, ShapingConfig, SingleLearnedReward, frames_from_render

url = sys.argv[1]
SHAPING, INSTRUCTION = ShapingConfig(gamma=0.99), "hold the pole up"
with RewardClient(url) as client:
    env = gym.make_vec("CartPole-v1", 4, vectorization_mode="sync", render_mode="rgb_array")
    env = LearnedReward(env, client, SHAPING, get_frames=frames_from_render(), instructions=INSTRUCTION)
    env.reset(seed=0)
    total, num_ended = 0.0, 0
    for _ in range(60):
        _, reward, terminated, truncated, infos = env.step(env.action_space.sample())
        assert np.isfinite(reward).all() and (reward[~infos["valid_transition"]] == 0).all()
        total, num_ended = total + reward.sum(), num_ended + int((terminated | truncated).sum())
    env.close()
    single_env = gym.make("CartPole-v1", render_mode="rgb_array")
    frames = frames_from_render()
    single_env = SingleLearnedReward(single_env, client, SHAPING, get_frames=frames, instruction=INSTRUCTION)
    single_env.reset(seed=0)
    for _ in range(5):
        single_env.step(single_env.action_space.sample())
    single_env.close()
unwanted = {"embodied_rm", "torch", "msgspec", "starlette", "grpc", "mujoco", "pyarrow"} & set(sys.modules)
assert not unwanted, unwanted
versions = f"Python {sys.version.split()[0]}, gymnasium {gym.__version__}, numpy {np.__version__}"
print(f"{versions}: {num_ended} episodes ended, total reward {total:.2f}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="python3.9", help="Python of the virtual environment")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder, run_service(HASH_SERVICE_COMMAND) as service:
        venv_dir = Path(folder) / "own"
        subprocess.run([args.python, "-m", "venv", str(venv_dir)], check=True)
        python = str(venv_dir / "bin/python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"{CLIENT_DIR}[gymnasium]", "pygame"], check=True)
        command = [python, "-I", "-W", "ignore", "-c", CLIENT_SCRIPT, service.url]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
    logging.info(result.stdout.strip())


if __name__ == "__main__":
    main()
