"""Files of goal images: read as images of datasets are, and refused in a sentence where those are refused."""

from __future__ import annotations

import ast
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from embodied_rm.errors import DataError
from embodied_rm.models import goal_images
from embodied_rm.models.goal_images import read_goal_images
from embodied_rm.serve.workers import decode_images

PACKAGE = Path(goal_images.__file__).parents[1]
ROTATED = 6  # value of the tag of EXIF, of a camera that was turned by 90 degrees
ORIENTATION_TAG = 0x112


def test_a_goal_image_is_upright_as_its_camera_was_held(tmp_path: Path) -> None:
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20] = 255
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = ROTATED
    Image.fromarray(pixels).save(tmp_path / "front.jpg", exif=exif, quality=100)
    (frame,) = read_goal_images([tmp_path / "front.jpg"]).frames[0]
    assert frame.shape == (60, 40, 3)
    assert frame[:, 25:].min() > 250 and frame[:, :15].max() < 5, "what was above is now at the right"


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_a_depth_map_is_refused(tmp_path: Path, dtype: type) -> None:
    Image.fromarray(np.arange(2400).reshape(40, 60).astype(dtype)).save(tmp_path / "front.tiff")
    with pytest.raises(DataError, match=r"front\.tiff: .*a depth map"):
        read_goal_images([tmp_path / "front.tiff"])


def test_a_photograph_of_many_scans_is_refused(tmp_path: Path) -> None:
    stored = io.BytesIO()
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(stored, "JPEG", progressive=True)
    content = stored.getvalue()
    (tmp_path / "front.jpg").write_bytes(content)
    assert read_goal_images([tmp_path / "front.jpg"]).frames.shape == (1, 1, 64, 64, 3)
    last = content.rindex(b"\xff\xda")
    (tmp_path / "front.jpg").write_bytes(content[:last] + content[last:-2] * 5000 + content[-2:])
    with pytest.raises(DataError, match=r"front\.jpg: .*more than 100 scans"):
        read_goal_images([tmp_path / "front.jpg"])


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_crafted_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    stored = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(stored, "TIFF")
    rng, content = np.random.default_rng(0), bytearray(stored.getvalue())
    (directory,) = struct.unpack("<I", content[4:8])
    path = tmp_path / "front.tiff"
    for _ in range(400):
        crafted = bytearray(content)
        crafted[rng.integers(directory, min(directory + 120, len(content)))] = rng.integers(256)
        crafted[rng.integers(directory, min(directory + 120, len(content)))] = rng.integers(256)
        path.write_bytes(crafted)
        try:
            read_goal_images([path])
        except DataError as error:
            assert str(error).startswith(f"{path}: not an image that can be read (")


def test_the_limits_are_those_of_datasets_and_of_the_service() -> None:
    """The reader of datasets runs as a script of its own, so its constants are read and not imported."""
    tree = ast.parse((PACKAGE / "data" / "workers" / "read_images.py").read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    sources = {ast.unparse(node.targets[0]): ast.unparse(node.value) for node in assigned}
    assert ast.literal_eval(sources["FORMATS"]) == goal_images.FORMATS
    assert set(ast.literal_eval(sources["COLOR_MODES"].removeprefix("frozenset(").removesuffix(")"))) == (
        goal_images.COLOR_MODES
    )
    limits = ast.parse((PACKAGE / "data" / "workers" / "framing.py").read_text())
    assert f"MAX_PIXELS = {goal_images.MAX_PIXELS // 4320} * 4320" in ast.unparse(limits)
    assert decode_images.MAX_SCANS == goal_images.MAX_SCANS
