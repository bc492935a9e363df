"""Training over sites by DP-SGD or DP-FedAvg: layers, clipped gradients, and rounds."""
