"""Metrics mark a finished run: they are its last file."""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "embodied_rm"
WRITES = re.compile(r"\b(write_|plot_|save_|copy)\w*\(")
METRICS = "write_json('metrics.json'"


def writes_after_metrics(source: str) -> list[int]:
    """Return the lines of functions that write after the metrics, unless the function has returned with them."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    lines = set()
    for statements in (getattr(node, "body", []) for function in functions for node in ast.walk(function)):
        texts = [ast.unparse(part) for part in statements] if isinstance(statements, list) else []
        first = next((index for index, text in enumerate(texts) if METRICS in text), len(texts))
        if first < len(texts) and isinstance(statements[first], ast.If):
            continue
        lines |= {statements[i].lineno for i in range(first + 1, len(texts)) if WRITES.search(texts[i])}
    return sorted(lines)


def test_the_check_finds_a_late_file() -> None:
    assert writes_after_metrics("def f(run):\n    run.write_json('metrics.json', {})\n    write_report(run)\n") == [3]
    assert writes_after_metrics("def f(run):\n    write_report(run)\n    run.write_json('metrics.json', {})\n") == []


def test_metrics_are_the_last_file_of_every_command() -> None:
    late = {str(path): writes_after_metrics(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    assert {path: lines for path, lines in late.items() if lines} == {}
