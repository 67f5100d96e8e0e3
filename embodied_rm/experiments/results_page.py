"""What the `bench` commands share: the machine's name, and a page of results of which each writes its section."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from pathlib import Path

import torch

from embodied_rm.atomic_file import write_atomic

PAGE_PREFACE = "Every section is written by the command it names, with `page=` this file; ratios are of one run."


def describe_machine() -> str:
    """The processor, how much of it there is, and the GPU."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores, {gpu}"


def cpu_name() -> str:
    """The name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    model_names = [
        line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
    ]
    return model_names[0] if model_names else platform.machine()


def companion_path(page: Path, name: str, suffix: str) -> Path:
    """A file that belongs to a page, and to the comparison `name` where the page has several."""
    return page.with_name("_".join(filter(None, (page.stem, name))) + suffix)


def write_section(page: Path, command: str, text: str, title: str = "Benchmarks") -> None:
    """Write `text` (Markdown, from its heading on) as the section of `command`; the other sections stay.

    `title`: that of the page, where there is none yet.
    """
    old_text = page.read_text() if page.exists() else f"# {title}\n\n{PAGE_PREFACE}\n"
    start_marker, end_marker = f"<!-- {command} -->", f"<!-- end of {command} -->"
    section = f"{start_marker}\n{text}\n\n{date.today().isoformat()}; {describe_machine()}.\n{end_marker}\n"
    pattern = re.compile(f"{re.escape(start_marker)}.*?{re.escape(end_marker)}\n", re.DOTALL)
    new_text = (
        pattern.sub(lambda _: section, old_text) if pattern.search(old_text) else f"{old_text.rstrip()}\n\n{section}"
    )
    write_atomic(page, new_text)
