"""Privacy accounting: events, the privacy filter, composition, Renyi divergence, subsampling."""
