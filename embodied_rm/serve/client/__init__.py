"""Client of the reward service. Needs only numpy and httpx, and runs on Python 3.9."""
