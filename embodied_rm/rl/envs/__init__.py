"""Vector environments whose rewards and successes come from scores, and what a policy sees of them."""
