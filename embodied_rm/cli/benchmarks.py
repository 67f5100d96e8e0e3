"""What the `bench` commands share: the machine's name, and a page of results of which each writes its section."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from pathlib import Path

import torch

from embodied_rm.atomic_file import write_atomic

PREFACE = "Every section is written by the command it names, with `page=` this file; ratios are of one run."


def machine() -> str:
    """The processor, how much of it there is, and the GPU."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores, {gpu}"


def processor() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def beside(page: Path, name: str, suffix: str) -> Path:
    """A file that belongs to a page, and to the comparison `name` where the page has several."""
    return page.with_name("_".join(filter(None, (page.stem, name))) + suffix)


def put_section(page: Path, command: str, text: str, title: str = "Benchmarks") -> None:
    """Write `text` (Markdown, from its heading on) as the section of `command`; the other sections stay.

    `title`: that of the page, where there is none yet.
    """
    before = page.read_text() if page.exists() else f"# {title}\n\n{PREFACE}\n"
    begin, end = f"<!-- {command} -->", f"<!-- end of {command} -->"
    section = f"{begin}\n{text}\n\n{date.today().isoformat()}; {machine()}.\n{end}\n"
    old = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}\n", re.DOTALL)
    after = old.sub(lambda _: section, before) if old.search(before) else f"{before.rstrip()}\n\n{section}"
    write_atomic(page, after)
