"""The simulated provider's side of `gemini`."""
