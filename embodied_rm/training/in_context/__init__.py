"""Adapt a demonstration in context: learn from copies of it how frames are compared."""
