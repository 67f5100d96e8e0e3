"""A mistake in a value is one sentence, before anything heavy is imported."""

from __future__ import annotations

import subprocess
import sys
import typing
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from embodied_rm import hub_checkpoint
from embodied_rm.cli import compose, early_checks
from embodied_rm.cli.config_errors import field_type, leaf_keys
from embodied_rm.cli.main import load_command, main
from embodied_rm.config_files import command_names
from embodied_rm.data import hub
from embodied_rm.paths import BUNDLED_NAMES

REPORT_IMPORTS = """
import sys
from embodied_rm.cli.main import main
code = main(sys.argv[1:])
heavy = {"torch", "mujoco", "pyarrow", "av", "matplotlib"} & set(sys.modules)
print("heavy:", *sorted(heavy), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train"], "error: data is required: embodied-rm train data=...; see --help"),
        (["refine", "task=lift_cube"], "error: policy is required: embodied-rm refine policy=...; see --help"),
        (["train", "data=nowhere"], "error: data=nowhere does not exist"),
        (["train", "data=/", "held_out=nowhere"], "error: held_out=nowhere does not exist"),
        (
            ["refine", "task=lift_cube", "policy=/", "teach.every=5", "teach.data=x"],
            "error: teach.data=x does not exist",
        ),
        (
            ["score", "data=lerobot/pusht"],
            "error: data=lerobot/pusht does not exist; a dataset of the Hugging Face Hub is data=hub:lerobot/pusht",
        ),
        (["train", "data=/", "steps=many"], "error: steps must be a whole number, got many"),
        (["train", "data=/", "learning_rate=fast"], "error: learning_rate must be a number, got fast"),
        (["train", "data=/", "fsdp=perhaps"], "error: fsdp must be true or false, got perhaps"),
        (["collect", "env.num_envs=few"], "error: env.num_envs must be a whole number, got few"),
    ],
)
def test_nothing_heavy_is_imported(words: list[str], sentence: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", REPORT_IMPORTS, *words]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [sentence, "heavy:"]
    assert not list(tmp_path.iterdir())


def test_names_that_are_no_folders_are_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bundled model, the hub, and several policies; each gets past the check of paths to another mistake."""
    for words in (
        ["score", "data=hub:no-such-owner/nothing", "checkpoint=real", "frame_stride=x"],
        ["score", f"data={tmp_path}", "checkpoint=hf:owner/name", "frame_stride=x"],
        ["collect", f"policies=[{tmp_path}]", "frame_stride=x"],
    ):
        assert main(words) == 2
        assert "frame_stride must be a whole number, got x" in capsys.readouterr().err


def test_names_and_prefixes_are_those_of_the_readers() -> None:
    """They are written again, since the modules that read checkpoints import torch."""
    assert early_checks.NAMES_WITHOUT_FOLDER == BUNDLED_NAMES
    assert set(early_checks.REMOTE_PREFIXES) == {hub.HUB_PREFIX, hub_checkpoint.HUB_PREFIX}


def accepts_text(hint: object) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return any(isinstance(value, str) for value in typing.get_args(hint))
    return hint is str or any(map(accepts_text, typing.get_args(hint)))


def test_no_key_with_a_number_accepts_a_text() -> None:
    """The check reads defaults only, so that a default number must mean that its key takes none but numbers."""
    num_keys = 0
    for name in command_names():
        known, schema = compose.compose_untyped(name), load_command(name).schema
        for key in leaf_keys(known):
            if OmegaConf.is_missing(known, key.split(".")[0]):
                continue
            if isinstance(OmegaConf.select(known, key), bool | int | float):
                assert not accepts_text(field_type(schema, key)), f"{name}: {key}"
                num_keys += 1
    assert num_keys > 300


@pytest.mark.parametrize("words", [["version"], ["-V"], ["--version"]])
def test_the_version_has_three_names(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.count(".") == 2


def test_help_is_a_word_and_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for words in (["help"], ["--help"], []):
        assert main(words) == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1] == pages[2] and "Commands" in pages[0]
    for words in (["help", "bench", "sim"], ["bench", "sim", "--help"], ["--help", "bench", "sim"]):
        assert main(words) == 0
        assert "embodied-rm bench sim:" in capsys.readouterr().out


def test_a_group_of_commands_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["bench"], ["help", "bench"], ["bench", "--help"]):
        assert main(words) == 2
        assert "bench is a group of commands: bench cloning, bench dpo" in capsys.readouterr().err
