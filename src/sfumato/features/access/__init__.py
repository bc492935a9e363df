"""Users, roles, passwords, tokens and invitations."""
