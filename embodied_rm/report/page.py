"""A `Report` as one HTML file: the template with its style, script and data put in."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

from embodied_rm.atomic_file import write_atomic
from embodied_rm.report.clip import encode_clip
from embodied_rm.report.contents import Panel, Report

DIGITS = 4
"""Decimals of a curve in the page: finer than a pixel."""


def write_report(path: Path, report: Report) -> None:
    """Write the page. It loads nothing from anywhere: video, script and style are inside."""
    write_atomic(path, render(report))


def render(report: Report) -> str:
    """The page's HTML."""
    parts = {
        "title": html.escape(report.title),
        "style": _asset("look.css") + _asset("report.css"),
        "script": _asset("report.js"),
        "data": embed(describe(report)),
    }
    page = _asset("report.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    return page


def describe(report: Report) -> dict[str, Any]:
    """The report as JSON-ready data; what is not finite becomes null."""
    return {
        "title": report.title,
        "subtitle": report.subtitle,
        "figures": [dataclasses.asdict(figure) for figure in report.figures],
        "checks": [dataclasses.asdict(check) for check in report.checks],
        "success": [dataclasses.asdict(row) for row in report.success],
        "curves": [dataclasses.asdict(curve) for curve in report.curves],
        "tables": [dataclasses.asdict(table) for table in report.tables],
        "panels": [_panel(panel) for panel in report.panels],
        "details": {key: str(value) for key, value in report.details.items()},
    }


def embed(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _panel(panel: Panel) -> dict[str, Any]:
    episode = panel.episode
    return {
        "name": episode.name,
        "instruction": episode.instruction,
        "fps": episode.fps,
        "length": len(episode),
        "views": list(episode.views),
        "steps": [dataclasses.asdict(step) for step in episode.steps],
        "outcome": episode.meta.get("outcome", ""),
        "done": episode.success,
        "progress": _column(panel.progress),
        "success": _column(panel.success),
        "truth": _column(episode.progress),
        "video": base64.b64encode(encode_clip(episode)).decode("ascii"),
    }


def _column(values: Any) -> list[float] | None:
    return None if values is None else [round(float(value), DIGITS) for value in values]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _asset(name: str) -> str:
    return files("embodied_rm.report").joinpath(name).read_text(encoding="utf-8")
