"""Step-aware robot reward models: learned from video and a sentence, safe to optimise."""
