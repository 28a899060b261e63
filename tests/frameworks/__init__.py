"""Frameworks on top of the SDKs, healed end to end; each is skipped where it is not installed."""
