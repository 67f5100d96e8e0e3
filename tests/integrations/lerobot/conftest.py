"""A day of a LeRobot user, once for all tests; they run in a Python that has `lerobot`: make test-lerobot."""

import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from tiny_smolvlm import IMAGE_SIZE, write_tiny_smolvlm

ROOT = Path(__file__).resolve().parents[3]
CHUNK_FRAMES, STEPS = 10, 4
RELEASE_FLAGS = {
    "0.4": ("--use_rabc=true", "--eval_freq=0", "--dataset.video_backend=pyav"),
    "0.6": ("--sample_weighting.type=rabc", "--env_eval_freq=0"),
}
"""Minor release of lerobot -> its names for RA-BC weights and for training without an environment."""


@dataclass(frozen=True, kw_only=True)
class Day:
    """What the day has left."""

    folder: Path
    log: str

    @property
    def dataset(self) -> Path:
        return self.folder / "collect" / "dataset"


@pytest.fixture(scope="session")
def day(tmp_path_factory: pytest.TempPathFactory) -> Day:
    """Run docs/examples/lerobot/day.sh with a tiny SmolVLA and RA-BC weights."""
    folder = tmp_path_factory.mktemp("day")
    write_tiny_smolvlm(folder / "vlm")
    policy = {
        "type": "smolvla", "device": "cpu", "vlm_model_name": folder / "vlm", "num_vlm_layers": 2,
        "train_expert_only": "false", "chunk_size": CHUNK_FRAMES, "n_action_steps": CHUNK_FRAMES,
        "resize_imgs_with_padding": f"[{IMAGE_SIZE},{IMAGE_SIZE}]",
    }  # fmt: skip
    training = (f"--steps={STEPS}", f"--save_freq={STEPS}", "--log_freq=1", "--num_workers=0", "--wandb.enable=false")
    flags = RELEASE_FLAGS[version("lerobot").rpartition(".")[0]]
    command = [ROOT / "docs" / "examples" / "lerobot" / "day.sh", folder, *training, *flags]
    command += [f"--policy.{name}={value}" for name, value in policy.items()]
    environment = {
        "EMBODIED_RM": str(ROOT / ".venv" / "bin" / "embodied-rm"), "LEROBOT_BIN": str(Path(sys.executable).parent),
        "NUM_SUCCESSES": "4", "NUM_FAILURES": "4", "NUM_EVAL_EPISODES": "2", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    result = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    return Day(folder=folder, log=result.stderr)
