"""OpenAI's Chat Completions, and the servers with this format."""
