"""Streams: running counts (continual counting) over periods that arrive one by one."""
