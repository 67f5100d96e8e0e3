"""The client of the reward service as a distribution of its own, `embodied-rm-client`, from the files of this one.

It is called `embodied_rm.serve.client` there too: what is written for one runs with the other. Install one of them.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
FILES = ("__init__.py", "shaping.py", "serve/__init__.py", "serve/client/*.py")
"""What it is made of."""
METADATA = """Metadata-Version: 2.1
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
WHEEL = "Wheel-Version: 1.0\nGenerator: embodied-rm\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(folder: Path | str) -> Path:
    """Write the wheel into a folder, the same bytes for the same files; its path."""
    number = version("embodied-rm")
    name = f"embodied_rm_client-{number}"
    found = sorted(path for pattern in FILES for path in PACKAGE.glob(pattern))
    content = {str(Path(PACKAGE.name) / path.relative_to(PACKAGE)): path.read_bytes() for path in found}
    content[f"{name}.dist-info/METADATA"] = METADATA.format(version=number).encode()
    content[f"{name}.dist-info/WHEEL"] = WHEEL.encode()
    record = f"{name}.dist-info/RECORD"
    lines = [f"{path},sha256={digest(data)},{len(data)}" for path, data in content.items()]
    content[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    wheel = Path(folder) / f"{name}-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in content.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data)
    return wheel


def digest(data: bytes) -> str:
    """As a wheel's record has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
