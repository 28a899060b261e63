"""Bytes, JSON and server-sent events: what all formats share."""
