"""The simulated provider's side of `anthropic`."""
