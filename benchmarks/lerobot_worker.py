"""Worker of lerobot_exchange.py, run by a Python with `lerobot` and without this package.

read <dataset> <out.npz>     save all frames, states, actions and instructions as LeRobot reads them; print the versions
write <dataset> <in.npz>     write a dataset with LeRobot
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import CODEBASE_VERSION, LeRobotDataset

VIEW_NAMES = ("front", "wrist")


def read_dataset(root: Path, out: Path) -> None:
    """Save every item of the dataset, by episode."""
    data = LeRobotDataset("local/exchange", root=root, video_backend="pyav")
    columns: dict[str, list[np.ndarray]] = {}
    instructions: dict[str, np.ndarray] = {}
    for row in range(len(data)):
        item = data[row]
        i = int(item["episode_index"])
        for view in VIEW_NAMES:
            pixels = item[f"observation.images.{view}"].permute(1, 2, 0).numpy()
            columns.setdefault(f"{i}/{view}", []).append(np.round(pixels * 255).astype(np.uint8))
        columns.setdefault(f"{i}/state", []).append(item["observation.state"].numpy())
        columns.setdefault(f"{i}/action", []).append(item["action"].numpy())
        instructions[f"{i}/instruction"] = np.array(item["task"])
    np.savez(out, allow_pickle=False, **{key: np.stack(rows) for key, rows in columns.items()}, **instructions)
    print(f"{version('lerobot')}, {CODEBASE_VERSION}")  # noqa: T201 (the parent process reads it)


def write_dataset(root: Path, source: Path) -> None:
    """Write the episodes of the arrays in `source`."""
    arrays = np.load(source, allow_pickle=False)
    height, width = arrays["0/front"].shape[1:3]
    image: dict[str, object] = {"dtype": "video", "shape": (height, width, 3), "names": ["height", "width", "channels"]}
    features: dict[str, dict[str, object]] = {f"observation.images.{view}": image for view in VIEW_NAMES}
    for name, key in (("observation.state", "state"), ("action", "action")):
        features[name] = {"dtype": "float32", "shape": (arrays[f"0/{key}"].shape[1],), "names": None}
    data = LeRobotDataset.create(
        "local/exchange", fps=int(arrays["fps"]), features=features, root=root, use_videos=True
    )
    for i in range(int(arrays["count"])):
        task = str(arrays[f"{i}/instruction"])
        for row in range(len(arrays[f"{i}/state"])):
            frame = {f"observation.images.{view}": arrays[f"{i}/{view}"][row] for view in VIEW_NAMES}
            frame |= {"observation.state": arrays[f"{i}/state"][row], "action": arrays[f"{i}/action"][row]}
            if CODEBASE_VERSION == "v2.1":
                data.add_frame(frame, task=task)
            else:
                data.add_frame({**frame, "task": task})
        data.save_episode()
    if hasattr(data, "finalize"):
        data.finalize()
    print("written")  # noqa: T201


if __name__ == "__main__":
    {"read": read_dataset, "write": write_dataset}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
