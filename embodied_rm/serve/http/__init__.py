"""HTTP interface of the service."""
