"""Layers of encoders and objectives, in `keras.ops` alone."""
