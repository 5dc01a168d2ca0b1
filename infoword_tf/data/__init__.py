"""Text on its way to the model: corpora -> documents -> token store -> batches.

A corpus is named by one string (`pydocs`, `text:GLOB`; corpora.py) and yields
documents, tuples of sentences that know where they are from (documents.py).
The token store keeps their ids, words, sentences and document starts, and
serves the global batch of a step as a pure function of (seed, step). Nothing
of the corpora needs TensorFlow or Keras.
"""
