"""What talks to the reward service. Needs numpy and httpx only, and runs on Python 3.9: this folder is all of it."""
