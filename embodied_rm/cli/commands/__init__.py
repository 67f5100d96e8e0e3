"""One module per command, with a `COMMAND`. Names, defaults and help texts are in `configs/`."""
