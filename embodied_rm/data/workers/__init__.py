"""Child processes that read what users bring: whatever a damaged file does to a library, it does it there."""
