"""Several commands in one run folder: finished ones are skipped, and all time is counted."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from embodied_rm.command import Command
from embodied_rm.experiments.pipeline import Pipeline
from embodied_rm.run_folder import NullReporter, Reporter, RunFolder

NAP = 0.05


@dataclass(frozen=True, kw_only=True)
class NapConfig:
    steps: int = 1


def test_interrupted_sessions_count_and_finished_commands_are_skipped(tmp_path: Path) -> None:
    calls = []

    def start(config: NapConfig, run: RunFolder, reporter: Reporter) -> None:
        calls.append(len(calls))
        time.sleep(NAP)
        if len(calls) == 1:
            raise KeyboardInterrupt
        run.write_json("metrics.json", {"calls": len(calls)})

    command, run = Command(schema=NapConfig, main=start), RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Pipeline(run, NullReporter()).run_command("nap", "nap", command, NapConfig())
    second_session = Pipeline(run, NullReporter())
    for _ in range(2):
        assert second_session.run_command("nap", "nap", command, NapConfig()) == {"calls": 2}
    assert calls == [0, 1] and second_session.seconds_by_phase["nap"] >= 2 * NAP
