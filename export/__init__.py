"""A trained workdir as a SavedModel that takes strings."""

import os

# Before anything imports Keras: the commands of this folder are TensorFlow's.
os.environ['KERAS_BACKEND'] = 'tensorflow'
