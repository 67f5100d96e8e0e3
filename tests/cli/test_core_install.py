"""The core, without any extra: it scores, trains, evaluates and wraps environments; what needs an extra names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from score_corpus import write_corpus

ROOT = Path(__file__).resolve().parents[2]
EXTRA_PACKAGES = (
    "mujoco",
    "transformers",
    "h5py",
    "starlette",
    "uvicorn",
    "msgspec",
    "grpc",
    "onnxruntime",
    "ray",
    "wandb",
)
HIDE_EXTRAS = f"""
import importlib.util, sys
HIDDEN = {EXTRA_PACKAGES!r}

class HiddenPackages:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, HiddenPackages())
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.partition(".")[0] in HIDDEN else find_spec(name, *rest)
"""
LOOP = """
from pathlib import Path
from embodied_rm.cli.main import main
data, out = sys.argv[1:]
assert main(["train", f"data={data}", "steps=2", "batch_size=4", "image_size=[32,32]", f"out={out}/train"]) == 0
assert main(["score", f"data={data}", f"checkpoint={out}/train", "videos=false", f"out={out}/score"]) == 0
assert main(["export", f"checkpoint={out}/train", f"out={out}/export"]) == 2
assert main(["collect", f"out={out}/collect"]) == 2
"""
PYTHON = """
import gymnasium, numpy as np
import embodied_rm as erm
data = list(erm.open_dataset(sys.argv[1]))
model = erm.load_reward_model(sys.argv[2] + "/train")
assert 0 <= model.evaluate(data)["reward_model"]["mae"] <= 1
env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
env = erm.LearnedReward(env, model, instruction=data[0].instruction, get_frames=lambda env, *rest: dict.fromkeys(
    model.input_spec.views, np.zeros((1, 32, 32, 3), np.uint8)))
env.reset(seed=0)
assert np.isfinite(env.step(env.action_space.sample())[1])
"""


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"}
    command = [sys.executable, "-c", HIDE_EXTRAS + script, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_the_core_trains_scores_and_evaluates_and_names_the_extra_of_everything_else(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data")
    done = run(LOOP + PYTHON, str(data), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "pip install 'embodied-rm[sim]'" in done.stderr and "pip install 'embodied-rm[onnx]'" in done.stderr
    assert json.loads((tmp_path / "score" / "metrics.json").read_text())


def test_extras_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {name.partition(">")[0] for name in project["dependencies"]}
    assert not core & {*EXTRA_PACKAGES}
    assert {"sim", "rl", "serve", "all"} <= set(project["optional-dependencies"])
