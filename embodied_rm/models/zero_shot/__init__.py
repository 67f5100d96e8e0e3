"""A reward model for video of real robots that it was never trained on: a video, an instruction, no demonstration."""
