"""Trees over boxes: growing them with the C builders, and their expected cost."""
