"""The public Python API: what `embodied_rm` exports is defined here."""
