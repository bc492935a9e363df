"""Files that owners hand in: they wait here, unread, until their data set is added."""
