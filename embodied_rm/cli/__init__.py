"""The composition root: the console script, its commands and everything that prints."""
