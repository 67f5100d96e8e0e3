"""Video files: writing, probing and reading. Reading runs in a child process, because damaged files can crash it."""
