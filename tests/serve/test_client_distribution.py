"""The client is a distribution of its own, with an import name of its own, few dependencies and Python 3.9."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from embodied_rm import client as client_package

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "embodied_rm" / "client"
ENVIRONMENT_MODULES = ("autoreset", "frame_getters", "learned_reward", "vector_reward")  # need gymnasium


@pytest.mark.parametrize("path", sorted(CLIENT.rglob("*.py")), ids=lambda path: path.stem)
def test_the_client_imports_only_numpy_and_httpx_and_parses_with_python_39(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    allowed = {"__future__", "collections", "contextlib", "copy", "dataclasses", "importlib", "inspect", "json"}
    allowed |= {"random", "re", "secrets", "threading", "time", "typing", "warnings", "numpy", "httpx"}
    allowed |= {"gymnasium" if path.stem in ENVIRONMENT_MODULES else "numpy"}
    if path.parent.name == "integrations":  # a module has the name of its library
        allowed |= {"abc", path.stem, "torch", "tensordict", "gymnasium"}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in names:
            assert name.split(".")[0] in allowed, f"{path}: {name}"
        if isinstance(node, ast.Call):  # keywords that Python 3.9 does not know
            keywords = {keyword.arg for keyword in node.keywords}
            function = getattr(node.func, "id", getattr(node.func, "attr", ""))
            assert not (function == "zip" and "strict" in keywords) and "kw_only" not in keywords
            assert not (function == "dataclass" and "slots" in keywords)


def test_the_client_is_a_distribution_of_its_own(url, tmp_path) -> None:
    """Its wheel owns one import name, and works without the rest of the package on the path."""
    shutil.copytree(CLIENT, tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = (sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir")
    subprocess.run([*pip, str(tmp_path), str(tmp_path / "source")], check=True, timeout=120)
    with zipfile.ZipFile(next(tmp_path.glob("embodied_rm_client-*.whl"))) as archive:
        archive.extractall(tmp_path / "alone")
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {f"embodied_rm_client/{path.relative_to(CLIENT)}" for path in CLIENT.rglob("*.py")}
    versions = {
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"] for folder in (ROOT, CLIENT)
    }
    assert len(versions) == 1
    script = f"""
import sys
sys.path[:0] = [{str(tmp_path / "alone")!r}]
import embodied_rm_client, numpy as np
from embodied_rm_client import RewardClient
assert embodied_rm_client.__file__.startswith({str(tmp_path)!r}), embodied_rm_client.__file__
with RewardClient({url!r}) as client:
    frames = {{"front": np.zeros((2, 8, 8, 3), np.uint8)}}
    client.reset([0, 1], [0, 0], ["lift"] * 2, frames)
    assert client.step([0, 1], [0, 0], [1, 1], frames).valid.all()
assert not {{"embodied_rm", "torch", "gymnasium", "msgspec", "starlette"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, timeout=60)


def test_public_names_of_the_client_are_importable() -> None:
    assert sorted(client_package.EXPORTS) == client_package.__all__
    for name in client_package.__all__:
        assert getattr(client_package, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Client'"):
        client_package.Client  # noqa: B018
