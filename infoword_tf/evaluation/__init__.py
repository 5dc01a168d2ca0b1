"""How good vectors are: files of judgements, exact search, and measures.

Vectors come from outside, so nothing here needs TensorFlow or Keras.
"""
