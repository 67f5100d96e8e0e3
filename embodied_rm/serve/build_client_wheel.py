"""Builds `embodied-rm-client`, a distribution with only the client of the reward service.

Its modules have the same names as here, so code written for one distribution runs with the other. Install only one.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib.metadata import version
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parents[1]
CLIENT_FILE_PATTERNS = (
    "__init__.py",
    "rewards/__init__.py",
    "rewards/episode_reward.py",
    "rewards/shaping.py",
    "serve/__init__.py",
    "serve/client/*.py",
)
"""Files of the wheel."""
METADATA_TEMPLATE = """Metadata-Version: 2.1
Name: embodied-rm-client
Version: {version}
Summary: Learned rewards for any Gymnasium environment, from a reward service of embodied-rm
Requires-Python: >=3.9
Requires-Dist: numpy
Requires-Dist: httpx>=0.25
Provides-Extra: gymnasium
Requires-Dist: gymnasium>=1.0; extra == "gymnasium"
License: Apache-2.0
"""
WHEEL_METADATA = "Wheel-Version: 1.0\nGenerator: embodied-rm\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_client_wheel(folder: Path | str) -> Path:
    """Write the wheel into a folder and return its path. Equal files give equal bytes."""
    package_version = version("embodied-rm")
    name = f"embodied_rm_client-{package_version}"
    paths = sorted(path for pattern in CLIENT_FILE_PATTERNS for path in PACKAGE_DIR.glob(pattern))
    contents = {str(Path(PACKAGE_DIR.name) / path.relative_to(PACKAGE_DIR)): path.read_bytes() for path in paths}
    contents[f"{name}.dist-info/METADATA"] = METADATA_TEMPLATE.format(version=package_version).encode()
    contents[f"{name}.dist-info/WHEEL"] = WHEEL_METADATA.encode()
    record_path = f"{name}.dist-info/RECORD"
    record_lines = [f"{path},sha256={record_digest(data)},{len(data)}" for path, data in contents.items()]
    contents[record_path] = "\n".join([*record_lines, f"{record_path},,", ""]).encode()
    wheel_path = Path(folder) / f"{name}-py3-none-any.whl"
    wheel_path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel_path, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in contents.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data)
    return wheel_path


def record_digest(data: bytes) -> str:
    """Return the digest in the format of a wheel's RECORD."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
