"""Joining two texts where an answer was cut. Pure functions of text."""
