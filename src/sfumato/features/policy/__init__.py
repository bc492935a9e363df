"""Policy: owners' grants, caps and freezes, and approvals by a second person."""
