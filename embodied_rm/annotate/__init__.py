"""A page on which a person corrects the steps of recorded episodes, and the server behind it, for this machine only."""
