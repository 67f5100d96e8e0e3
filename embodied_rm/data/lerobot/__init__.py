"""LeRobot datasets: read, written and checked."""
