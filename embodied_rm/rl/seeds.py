"""Seeds of streams of episodes, set apart by what they are for."""

from __future__ import annotations

import numpy as np


def stream_seed(*key: int) -> int:
    """An int in [0, 2**31) for a key; zeros at its end do not count. Neighbouring keys give seeds far apart, as vector
    environments need, whose row i draws from the seed plus i."""
    return int(np.random.SeedSequence(list(key)).generate_state(1)[0] >> 1)
