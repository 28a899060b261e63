"""What a turn came to: told, found again, as spans."""
