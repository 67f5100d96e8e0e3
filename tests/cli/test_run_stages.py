"""Several commands in one run folder: what is finished is not done again, and all time spent is told."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from embodied_rm.cli.command import Command
from embodied_rm.cli.stages import Stages
from embodied_rm.run import Reporter, RunFolder, Silent

NAP = 0.05


@dataclass(frozen=True, kw_only=True)
class NapConfig:
    steps: int = 1


def test_time_of_an_interrupted_session_counts_and_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    calls = []

    def start(config: NapConfig, run: RunFolder, reporter: Reporter) -> None:
        calls.append(len(calls))
        time.sleep(NAP)
        if len(calls) == 1:
            raise KeyboardInterrupt
        run.write_json("metrics.json", {"calls": len(calls)})

    command, run = Command(schema=NapConfig, start=start), RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Stages(run, Silent()).command("nap", "nap", command, NapConfig())
    later = Stages(run, Silent())
    for _ in range(2):
        assert later.command("nap", "nap", command, NapConfig()) == {"calls": 2}
    assert calls == [0, 1] and later.seconds["nap"] >= 2 * NAP
