"""A trained workdir as a SavedModel that takes strings."""
