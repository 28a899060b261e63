"""The rules of `openai` histories."""
