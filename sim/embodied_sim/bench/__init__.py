"""How fast the simulator is, against what people would use without it; ratios of one run on one machine."""
