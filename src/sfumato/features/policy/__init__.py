"""What owners decide: grants, caps, freezes, and a second person's approval."""
