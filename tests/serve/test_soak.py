"""A service that is used, and misused, says the same all the time and keeps nothing open."""

import asyncio

from serve_soak import IDLE_TIMEOUT_S, failed_targets, make_segments, memory_slope, run_soak
from serving import SERVE_COMMAND, run_service

SECONDS = 12.0


def test_a_few_seconds_of_an_hour() -> None:
    """A small one of `python benchmarks/serve_soak.py`."""
    with run_service([*SERVE_COMMAND, f"limits.idle_timeout_s={IDLE_TIMEOUT_S}"]) as service:
        seen = asyncio.run(run_soak(service, SECONDS))
    assert service.process.returncode == 0
    assert seen.num_wrong == 0 and seen.num_rejected > 0 and len(seen.durations) > 100
    first, *_, last = make_segments(seen, SECONDS)
    assert last.descriptors[1] <= first.descriptors[2] + 1 and last.mean_memory_mib < first.mean_memory_mib + 16
    seen.num_wrong = 2
    assert "2 answers were wrong" in failed_targets(seen, SECONDS)
    seen.resource_samples = [(now, int(memory + 1e6 * now), held) for now, memory, held in seen.resource_samples]
    assert memory_slope(seen) > 100 and any("memory rises by" in words for words in failed_targets(seen, SECONDS))
