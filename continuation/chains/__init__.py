"""The registry that keeps a Responses chain valid after a turn was healed."""
