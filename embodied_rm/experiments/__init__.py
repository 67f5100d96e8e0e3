"""Benchmarks, comparisons and pipelines of several commands, and the result pages that they write."""
