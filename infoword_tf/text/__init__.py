"""Tokenizers, and learning of vocabularies."""
