"""PPO, what it is made of, and the policy that it improves."""
