"""One file a command: the types of its keys and what it starts. Names, defaults and help are in `configs/`."""
