"""Web page for correcting the subtasks of recorded episodes, and its server, on this machine only."""
