"""Episodes in HDF5 files: robomimic's layout and Minari's."""
