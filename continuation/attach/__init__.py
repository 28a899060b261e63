"""Attaches turns to HTTP clients and SDK clients. No other room knows httpx2 and the SDKs."""
