"""The result of a turn: events, the report and how to find it, spans, the timeline."""
