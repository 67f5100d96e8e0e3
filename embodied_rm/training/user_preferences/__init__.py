"""Rewards of several users who prefer different things, from comparisons of clips (VPL, arXiv 2408.10075)."""
