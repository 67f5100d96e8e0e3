"""Video files: written, looked at and read, always by a child process that a damaged one may kill."""
