"""Commands that read data and no model load no library of models or of simulators."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path

import corruptions
import pytest
from child_process import start_process

from embodied_rm.data.lerobot.write import DatasetWriter

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "timm", "open_clip", "mujoco", "transformers", "onnxruntime", "embodied_sim", "gymnasium", "scipy"}
SCRIPT = """
import signal, sys
from embodied_rm.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell disables it for background processes
exit_code = main(sys.argv[1:])
print("modules:", *{name.partition(".")[0] for name in sys.modules})
sys.exit(exit_code)
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "data") as writer:
        writer.add(corruptions.make_episode(0))
    return tmp_path / "data"


def loaded_packages(output: str) -> set[str]:
    return set(output.rpartition("modules:")[2].split())


def start(*words: str) -> AbstractContextManager[subprocess.Popen[str]]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"}
    return start_process([sys.executable, "-c", SCRIPT, *words], env=env)


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "decode=false"], ["convert"]])
def test_inspect_and_convert_load_no_heavy_library(words: list[str], dataset: Path, tmp_path: Path) -> None:
    with start(*words, f"data={dataset}", f"out={tmp_path / 'run'}") as process:
        output, _ = process.communicate()
    assert process.returncode == 0 and "numpy" in loaded_packages(output)
    assert loaded_packages(output) & HEAVY == set()


def test_annotate_loads_no_heavy_library(dataset: Path) -> None:
    """It serves the page, proposes subtasks from the images, and ends."""
    with start("annotate", f"data={dataset}") as process:
        assert process.stdout is not None
        address = None
        while address is None:
            address = re.search(r"open (http://\S+/) in a browser", process.stdout.readline())
            assert process.poll() is None
        urllib.request.urlopen(f"{address[1]}episodes/0/proposal")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode == 0 and "numpy" in loaded_packages(output)
    assert loaded_packages(output) & HEAVY == set()
