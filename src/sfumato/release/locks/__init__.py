"""One lock per guarantee: what turns a sealed value into one that may be seen."""
