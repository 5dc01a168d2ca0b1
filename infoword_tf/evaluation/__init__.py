"""Evaluation of vectors: files of judgements, exact search, and measures.

Callers bring the vectors, so nothing here needs TensorFlow or Keras.
"""
