"""Renders a `Report` as one HTML file with inline style, script and data; headers of local pages that share them."""

import base64
import dataclasses
import html
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

from embodied_rm.atomic_file import write_atomic
from embodied_rm.report.contents import EpisodePanel, Report
from embodied_rm.report.episode_images import encode_episode

CURVE_DECIMALS = 4  # decimals of curve values, finer than a pixel
CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
"""File extension -> content type. All files are UTF-8."""
SHARED_ASSETS = ("look.css", "elements.js")  # files of this package that all local pages use


def write_report(path: Path, report: Report) -> None:
    """Write the report as a self-contained page: video, script and style are inline."""
    write_atomic(path, render_html(report))


def render_html(report: Report) -> str:
    """Return the HTML of a report."""
    fragments = {
        "title": html.escape(report.title),
        "style": _read_asset("look.css") + _read_asset("report.css"),
        "script": _read_asset("report.js"),
        "data": embed_json(to_json_dict(report)),
    }
    document = _read_asset("report.html")
    for name, text in fragments.items():
        document = document.replace(f"<!--{name}-->", text)
    return document


def to_json_dict(report: Report) -> dict[str, Any]:
    """Convert a report to JSON-ready data."""
    plain_parts = ("key_metrics", "cases", "success_rates", "charts", "tables")
    return {
        "title": report.title,
        "subtitle": report.subtitle,
        **{name: [dataclasses.asdict(part) for part in getattr(report, name)] for name in plain_parts},
        "contact_sheet": base64.b64encode(report.contact_sheet).decode("ascii"),
        "episodes": [_episode_dict(panel) for panel in report.episodes],
        "details": {key: str(value) for key, value in report.details.items()},
    }


def embed_json(value: Any) -> str:
    """Return JSON that is safe within a script element. Non-finite numbers become null."""
    return json.dumps(_replace_non_finite(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _episode_dict(panel: EpisodePanel) -> dict[str, Any]:
    episode = panel.episode
    return {
        "name": episode.name,
        "instruction": episode.instruction,
        "fps": episode.fps,
        "num_frames": len(episode),
        "views": list(episode.views),
        "subtasks": [dataclasses.asdict(subtask) for subtask in episode.subtasks],
        "outcome": episode.metadata.get("outcome", ""),
        "success": episode.success,
        "progress": _round_values(panel.progress),
        "success_prob": _round_values(panel.success_prob),
        "true_progress": _round_values(episode.progress),
        "video": base64.b64encode(encode_episode(episode)).decode("ascii"),
    }


def _round_values(values: Any) -> list[float] | None:
    return None if values is None else [round(float(value), CURVE_DECIMALS) for value in values]


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(item) for item in value]
    return value


def _read_asset(name: str) -> str:
    return files("embodied_rm.report").joinpath(name).read_text(encoding="utf-8")


def security_headers(*extra_policies: str) -> dict[str, str]:
    """Return the headers of a page and its assets. `extra_policies`: further permissions, e.g. "media-src blob:"."""
    policies = ("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", *extra_policies)
    policies += ("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return {
        "Content-Security-Policy": "; ".join(policies),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
