"""Access: users, roles, passwords, tokens and invitations."""
