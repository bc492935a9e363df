"""Private training of neural networks in integer arithmetic: clipping and Poisson subsampling."""
