"""Web pages of the service: scoring of videos, and an overview of active clients."""
