"""Batched physics behind one interface; nothing outside knows which engine runs."""
