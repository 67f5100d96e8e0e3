"""The learned reward in the environment classes and managers of other libraries: a module per library.

Each module needs its library, and only that module imports it.
"""
