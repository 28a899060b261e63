"""The engine decides what happens next: one turn as a generator of commands; no I/O, no format."""
