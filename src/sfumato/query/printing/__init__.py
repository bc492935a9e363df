"""A plan printed as SQL for an engine, from our own values alone."""
