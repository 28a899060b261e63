"""A driver for each SDK, all alike: requests a turn in four ways, and reads what came."""
