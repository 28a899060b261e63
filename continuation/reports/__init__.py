"""What became of a turn: events, the report and its look-up, spans, the timeline."""
