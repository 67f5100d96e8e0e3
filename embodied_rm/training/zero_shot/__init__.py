"""Train the zero-shot model of real robots: features, clips, the two kinds of nets, their calibration."""
