"""Inference: what a trained workdir can do."""
