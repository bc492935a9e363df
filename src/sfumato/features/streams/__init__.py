"""Running counts over days that come in."""
