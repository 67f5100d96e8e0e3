"""Colors of objects, by the names that instructions use."""

Color = tuple[float, float, float, float]  # R, G, B and opacity, in [0, 1]
PALETTE: dict[str, Color] = {
    "red": (0.85, 0.1, 0.1, 1.0),
    "blue": (0.1, 0.25, 0.9, 1.0),
    "green": (0.1, 0.62, 0.2, 1.0),
    "yellow": (0.95, 0.82, 0.1, 1.0),
    "purple": (0.55, 0.2, 0.7, 1.0),
    "orange": (0.95, 0.5, 0.1, 1.0),
}
