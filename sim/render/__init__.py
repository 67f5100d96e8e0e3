"""Batched pictures behind one interface; nothing outside knows which renderer runs."""
