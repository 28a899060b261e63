"""What happens next: one model turn as a generator of commands. No I/O, no wire format."""
