"""The simulator of the format `openai-responses`."""
