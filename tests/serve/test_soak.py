"""Under valid and invalid load, predictions stay the same and resources do not grow."""

import asyncio

from serve_soak import IDLE_TIMEOUT_S, failed_targets, make_segments, memory_slope, run_soak
from serving import SERVE_COMMAND, run_service

SECONDS = 12.0


def test_short_soak() -> None:
    """A short run of `python benchmarks/serve_soak.py`."""
    with run_service([*SERVE_COMMAND, f"limits.idle_timeout_s={IDLE_TIMEOUT_S}"]) as service:
        log = asyncio.run(run_soak(service, SECONDS))
    assert service.process.returncode == 0
    assert log.num_wrong == 0 and log.num_rejected > 0 and len(log.durations) > 100
    first, *_, last = make_segments(log, SECONDS)
    assert last.descriptors[1] <= first.descriptors[2] + 1 and last.mean_memory_mib < first.mean_memory_mib + 16
    log.num_wrong = 2
    assert "2 predictions were wrong" in failed_targets(log, SECONDS)
    log.resource_samples = [
        (now, int(memory + 1e6 * now), descriptors) for now, memory, descriptors in log.resource_samples
    ]
    assert memory_slope(log) > 100 and any("memory rises by" in message for message in failed_targets(log, SECONDS))
