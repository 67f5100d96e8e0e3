"""Seeds of independent streams of episodes."""

import numpy as np


def stream_seed(*key: int) -> int:
    """Return the seed of a key, an int in [0, 2**31); trailing zeros of the key are ignored.

    Similar keys have seeds that are far apart, because row i of a vector environment uses the seed plus i.
    """
    return int(np.random.SeedSequence(list(key)).generate_state(1)[0] >> 1)
