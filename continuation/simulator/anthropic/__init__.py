"""The simulator of the format `anthropic`."""
