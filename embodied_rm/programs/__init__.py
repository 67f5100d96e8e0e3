"""Reward programs: text that computes a reward from the state of a scene, written by a language model or a person.

A program is data. It is parsed and interpreted, never executed by Python, and its size bounds time and memory.
"""
