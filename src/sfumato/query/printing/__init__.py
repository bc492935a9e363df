"""Print a plan as SQL for an engine, from our own values alone."""
