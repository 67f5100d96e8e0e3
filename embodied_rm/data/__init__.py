"""Robot video datasets: LeRobot, plain mp4 files and HDF5, and recording from a vector environment."""
