"""Privacy accounting: events, privacy filter, composition, Rényi DP, Poisson subsampling."""
