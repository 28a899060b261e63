"""OpenAI's Responses, and the servers with this format."""
