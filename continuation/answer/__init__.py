"""Builds the caller's answer: reads attempts, and writes one answer. Knows no wire format."""
