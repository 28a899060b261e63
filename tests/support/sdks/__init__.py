"""One driver for each SDK, in one shape: a turn asked for in four ways, and what the caller got."""
