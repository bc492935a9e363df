"""Training in whole numbers: networks, clipping, Poisson sampling of people."""
