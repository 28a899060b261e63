"""Attaches to HTTP clients and SDK clients: the only room that knows httpx2 and the SDKs."""
