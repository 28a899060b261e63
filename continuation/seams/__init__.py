"""Joins two texts where an answer was truncated. Pure functions of text."""
