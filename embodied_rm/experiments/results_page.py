"""Results pages in Markdown: one section per command, with the machine that it ran on."""

import platform
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

from embodied_rm.atomic_file import update_in_turn, write_atomic
from embodied_rm.run_folder import RunFolder
from embodied_rm.threads import count_cores

PAGE_PREFACE = (
    "Every section is written by the command it names, with `results_page=` this file; ratios are of one run."
)


def describe_machine() -> str:
    """Describe the machine: CPU, number of cores and GPU."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{cpu_name()}, {count_cores()} cores, {gpu}"


def cpu_name() -> str:
    """Return the name of the CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def companion_path(page: Path, name: str, suffix: str) -> Path:
    """Return the path of a file that belongs to a page and, if it has several, to the comparison `name`."""
    return page.with_name("_".join(filter(None, (page.stem, name))) + suffix)


def write_results(
    run: RunFolder, page: Path | None, command: str, metrics: Mapping[str, Any], text: str, title: str = "Benchmarks"
) -> None:
    """Write the metrics of a benchmark into its run folder and, if a page is set, its section."""
    if page is not None:
        write_section(page, command, text, title)
    run.write_json("metrics.json", {"bench": {"machine": describe_machine(), **metrics}})


def write_section(page: Path, command: str, text: str, title: str = "Benchmarks") -> None:
    """Write the section of a command into a page, created with `title` if missing; the other sections stay.

    `text` is Markdown that starts with a heading; `command` marks the section.
    """
    start_marker, end_marker = f"<!-- {command} -->", f"<!-- end of {command} -->"
    section = f"{start_marker}\n{text}\n\n{date.today().isoformat()}; {describe_machine()}.\n{end_marker}\n"
    pattern = re.compile(f"{re.escape(start_marker)}.*?{re.escape(end_marker)}\n", re.DOTALL)
    with update_in_turn(page):
        old_text = page.read_text() if page.exists() else f"# {title}\n\n{PAGE_PREFACE}\n"
        new_text, num_replaced = pattern.subn(lambda _: section, old_text)
        write_atomic(page, new_text if num_replaced else f"{old_text.rstrip()}\n\n{section}")
