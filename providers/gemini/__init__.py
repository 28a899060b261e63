"""Google's generateContent format."""
