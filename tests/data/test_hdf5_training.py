"""`embodied-rm train` on an HDF5 file without an instruction."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_hdf5 import write_robomimic

from embodied_rm.cli.main import main


def test_a_model_is_trained_on_demonstrations_without_an_instruction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_robomimic(tmp_path / "lift.hdf5", instruction=None)
    words = ["train", f"data={data}", "label_schemes=[rewind]", "fusion=forward", "steps=1", "batch_size=2"]
    words.append("image_size=[32,32]")
    assert main([*words, f"out={tmp_path / 'a'}"]) == 2
    assert "set instruction=" in capsys.readouterr().err
    words.append("instruction=lift the cube")
    assert main([*words, f"held_out={data}", f"out={tmp_path / 'b'}"]) == 2
    assert "demo_10: held out, but the same episode is trained on" in capsys.readouterr().err, (
        "the held-out episodes take the instruction too, and are read"
    )
    assert main([*words, f"out={tmp_path / 'c'}"]) == 0
    assert (tmp_path / "c" / "checkpoint").is_dir()
