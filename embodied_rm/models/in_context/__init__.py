"""A reward from one to five demonstrations over a frozen encoder: nothing is trained."""
