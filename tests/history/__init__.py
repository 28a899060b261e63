"""Tests of continuation.history."""
