"""Builds the caller's answer: reads attempts, writes one answer. Knows no wire format."""
