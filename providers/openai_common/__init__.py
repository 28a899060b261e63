"""What Chat Completions and Responses share: vendors as data, errors, token counts."""
