"""Print a plan as SQL for an engine, from sfumato's own values only."""
