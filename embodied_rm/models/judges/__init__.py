"""Judges: vision-language models that are asked, frame by frame, how far a task is."""
