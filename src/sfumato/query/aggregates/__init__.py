"""One verb, one file: what it needs, how far one person moves it, how the answer is computed."""
