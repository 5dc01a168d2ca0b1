"""Tasks and evaluations as commands; `flags/` holds every flagfile."""

import os

# Before anything imports Keras: the commands of this folder are TensorFlow's.
os.environ['KERAS_BACKEND'] = 'tensorflow'
