"""File descriptors of the process: without any left, no connection is answered, that of a health check included."""

import resource

from embodied_rm.errors import UserError

LISTEN_BACKLOG = 128  # connections that may be accepted at once, before the first of them is closed
NUM_RESERVED = 128  # descriptors for files, child processes and libraries


def raise_descriptor_limit(max_connections: int, num_servers: int) -> None:
    """Permit this process the descriptors that its connections need. Raises `UserError` if the system does not."""
    num_needed = num_servers * (max_connections + LISTEN_BACKLOG) + NUM_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < num_needed:
        if resource.RLIM_INFINITY != hard < num_needed:
            reason = f"needs {num_needed} open files, and this system permits {hard} (`ulimit -Hn`)"
            raise UserError(f"limits.max_connections={max_connections} {reason}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (num_needed, hard))
