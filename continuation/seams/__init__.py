"""Where two texts meet. Pure functions of text."""
