"""Whether it goes well: judging policies, checking what the model claims, the alarm."""
