"""The simulated provider's side of `openai_responses`."""
