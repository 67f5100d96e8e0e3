"""Views of HDF5 files that are left out, in some demonstrations or for their layout, are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from test_hdf5 import LENGTH, write_minari, write_robomimic

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.video.files import write_video

WRIST = "robot0_eye_in_hand"
EXPECTED = "left out, uint8 [T, H, W, 3] was expected"
IMAGES = np.zeros((LENGTH, 48, 64, 3), np.uint8)


def messages(path: Path, feature_map: FeatureMap | None = None) -> list[str]:
    source = open_dataset(path, feature_map=feature_map or FeatureMap(fps=5))
    assert all(issue.episodes == () for issue in source.issues), "nothing is left out"
    return [issue.message for issue in source.issues]


def test_a_view_that_a_demonstration_lacks_is_reported(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        del file[f"data/demo_2/obs/{WRIST}_image"]
    assert open_dataset(path).views == ("agentview",)
    assert messages(path) == [f"the view {WRIST} is left out: it is missing in demo_2"]
    assert messages(path, FeatureMap(views={"agentview": "front"})) == []


def test_a_view_that_a_file_lacks_is_reported(tmp_path: Path) -> None:
    write_robomimic(tmp_path / "a.hdf5")
    with h5py.File(write_robomimic(tmp_path / "b.hdf5"), "a") as file:
        for demo in file["data"].values():
            del demo[f"obs/{WRIST}_image"]
    assert messages(tmp_path) == [f"the view {WRIST} is left out: it is missing in b/demo_0, b/demo_2, b/demo_10"]


LAYOUTS: dict[str, tuple[Any, str]] = {
    "channels first": (IMAGES.transpose(0, 3, 1, 2), "uint8 [T, 3, 48, 64]"),
    "floats": (IMAGES.astype(np.float32), "float32 [T, 48, 64, 3]"),
    "with opacity": (IMAGES[..., [0, 1, 2, 2]], "uint8 [T, 48, 64, 4]"),
    "gray": (IMAGES[..., 0], "uint8 [T, 48, 64]"),
    "gray with a channel": (IMAGES[..., :1], "uint8 [T, 48, 64, 1]"),
    "several cameras": (np.stack([IMAGES] * 2, axis=1), "uint8 [T, 2, 48, 64, 3]"),
}


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("name", ["side_image", "side"])
def test_images_of_another_layout_are_reported_once(kind: str, name: str, tmp_path: Path) -> None:
    values, content = LAYOUTS[kind]
    path = write_robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            demo[f"obs/{name}"] = values
    assert open_dataset(path).views == ("agentview", WRIST)
    assert messages(path) == [f"obs/{name} holds {content}: {EXPECTED}"]
    assert messages(path, FeatureMap(views={"agentview": "front"})) == []


def test_encoded_images_are_reported(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        encoded = file["data/demo_0/obs"].create_dataset("side", (LENGTH,), h5py.vlen_dtype(np.uint8))
        encoded[0] = np.arange(100, dtype=np.uint8)
        file["data/demo_2/obs/side_rgb"] = np.zeros((LENGTH, 5000), np.uint8)
    assert messages(path) == [
        f"demo_0: obs/side holds object [T]: {EXPECTED}",
        f"demo_2: obs/side_rgb holds uint8 [T, 5000]: {EXPECTED}",
    ]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("agentview_depth", (LENGTH, 48, 64, 1)),
        ("poses", (LENGTH, 20, 4, 4)),
        ("points", (LENGTH, 1024, 3)),
        ("joints", (LENGTH, 64)),
    ],
)
def test_other_numbers_are_no_images(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        file[f"data/demo_0/obs/{name}"] = np.zeros(shape, np.float32)
    assert messages(path) == []


@pytest.mark.parametrize("video", ["playback.mp4", "videos/playback.mp4"])
def test_demonstrations_beside_a_video_of_them_are_reported(video: str, tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "image.hdf5")
    (tmp_path / video).parent.mkdir(exist_ok=True)
    write_video(tmp_path / video, IMAGES, 20)
    source = open_dataset(tmp_path, "lift")
    assert source.views == ("playback",)
    assert [issue.message for issue in source.issues] == [
        "is read for its videos, so its HDF5 files are not: image.hdf5; the path of one reads it"
    ]
    assert len(open_dataset(path)) == 3


def test_minaris_images_of_another_layout_are_reported(tmp_path: Path) -> None:
    folder = write_minari(tmp_path / "doors")
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        file["episode_1/infos/side"] = np.zeros((LENGTH + 1, 3, 48, 64), np.uint8)
    assert messages(folder) == [f"episode_1: infos/side holds uint8 [T, 3, 48, 64]: {EXPECTED}"]
