"""The wire formats: one module per provider API."""
