"""What an owner does: add a data set with its card, enrol users, thaw what was stopped."""
