"""Keeps a Responses chain valid after a turn that was completed from several responses."""
