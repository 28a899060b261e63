"""The simulator of the format `gemini`."""
