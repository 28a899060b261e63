"""OpenAI's Responses, and the servers that speak it."""
