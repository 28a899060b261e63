"""What Chat Completions and Responses share: profiles of vendors, errors, token counts."""
