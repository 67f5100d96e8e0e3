"""Vector environments whose rewards and successes come from scores, and observations with embeddings."""
