"""Where we hook in: the only room that knows httpx2 and the SDKs."""
