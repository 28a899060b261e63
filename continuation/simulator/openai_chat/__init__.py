"""The simulator of the format `openai-chat`."""
