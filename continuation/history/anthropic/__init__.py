"""The rules of `anthropic` histories."""
