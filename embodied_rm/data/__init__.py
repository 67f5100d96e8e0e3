"""Robot video in and out: LeRobot v3.0 datasets, plain mp4 files, recording from a vector environment."""
