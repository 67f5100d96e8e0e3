"""Judges: vision-language models that are asked for the progress of a task, frame by frame."""
