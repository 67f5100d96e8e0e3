"""Recordings given as plain mp4 files, a file a view: found in folders, or listed in a table."""
