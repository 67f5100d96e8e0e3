"""A service that is used, and misused, says the same all the time and keeps nothing open."""

import asyncio

from serve_soak import IDLE, missed, parts_of, slope_of, soak
from serving import REAL, running

SECONDS = 12.0


def test_a_few_seconds_of_an_hour() -> None:
    """A small one of `python benchmarks/serve_soak.py`."""
    with running([*REAL, f"limits.idle_s={IDLE}"]) as service:
        seen = asyncio.run(soak(service, SECONDS))
    assert service.process.returncode == 0
    assert seen.wrong == 0 and seen.refused > 0 and len(seen.took) > 100
    first, *_, last = parts_of(seen, SECONDS)
    assert last.descriptors[1] <= first.descriptors[2] + 1 and last.memory < first.memory + 16
    seen.wrong = 2
    assert "2 answers were wrong" in missed(seen, SECONDS)
    seen.held = [(now, int(memory + 1e6 * now), held) for now, memory, held in seen.held]
    assert slope_of(seen) > 100 and any("memory rises by" in words for words in missed(seen, SECONDS))
