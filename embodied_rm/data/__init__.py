"""Robot video datasets: LeRobot, plain videos and HDF5, and recording from a vector environment."""
