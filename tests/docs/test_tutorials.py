"""Every tutorial runs as it stands, with small numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
SMALL = {"TUTORIAL_STEPS": "5", "TUTORIAL_ITERATIONS": "2", "TUTORIAL_EPISODES": "4"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(tutorial: Path, tmp_path: Path) -> None:
    """In an empty folder, with the commands of this environment on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **SMALL, "PATH": path}
    done = subprocess.run(
        [sys.executable, str(tutorial)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()


def test_there_are_five() -> None:
    assert [path.stem for path in TUTORIALS] == [
        "refine_a_policy",
        "reward_in_gymnasium",
        "score_your_video",
        "train_from_lerobot",
        "write_a_reward_program",
    ]
