"""The examples and snippets of docs/ecosystem.md exist and run."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "ecosystem.md").read_text(encoding="utf-8")
SCRIPTS = [path for path in (ROOT / "docs" / "examples").glob("*.py") if "__main__" in path.read_text()]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_example_is_documented_and_has_help(path: Path) -> None:
    assert f"docs/examples/{path.name}" in PAGE
    command = [sys.executable, str(path), "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)})
    assert result.returncode == 0, result.stderr
    assert "--num-envs" in result.stdout


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
def test_every_snippet_imports_existing_names(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names)
