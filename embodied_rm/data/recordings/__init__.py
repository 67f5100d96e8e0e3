"""Recordings as plain mp4 files, one per view: found in folders, or listed in a table."""
