"""Layers: what encoders and objectives are made of, in `keras.ops` alone."""
