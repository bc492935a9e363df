"""DP-SGD over sites: layers, clipped gradients, rounds."""
