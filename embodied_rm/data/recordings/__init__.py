"""Recordings as plain videos, one per view: found in folders, or listed in a table."""
