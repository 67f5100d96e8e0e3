"""gRPC interface of the service."""
