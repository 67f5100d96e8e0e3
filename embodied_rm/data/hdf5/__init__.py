"""Episodes in HDF5 files in the layouts of robomimic and Minari."""
