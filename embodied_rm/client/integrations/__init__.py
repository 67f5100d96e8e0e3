"""The learned reward in the environment classes of reinforcement learning libraries: a module per library.

Each module needs its library, and only that module imports it.
"""
