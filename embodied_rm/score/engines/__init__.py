"""Engines: several processes, or Ray actors. Both write the shards that this process would."""
