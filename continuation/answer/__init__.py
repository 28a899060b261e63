"""One turn as the caller gets it: attempts in, one answer out. Knows no wire format."""
