"""The data card: the facts about a data set that its owner declares before any query."""
