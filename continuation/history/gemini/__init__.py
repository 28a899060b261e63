"""The rules of `contents` histories."""
