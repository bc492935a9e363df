"""Who may come in: users, their roles, passwords, tokens and invitations."""
