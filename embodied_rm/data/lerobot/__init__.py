"""LeRobot datasets: reading, writing and validation."""
