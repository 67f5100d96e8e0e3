"""MuJoCo manipulation tasks as Gymnasium vector environments. Never imports `embodied_rm`."""
