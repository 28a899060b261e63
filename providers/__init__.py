"""The wire formats: a folder for each, and what they share."""
