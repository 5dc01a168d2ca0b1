"""Pictures of views: the tokens as they are read, and who sees whom.

Drawn from what an encoder is given, the fields of a view, whatever view it
is: above the tokens, with what is asked for below them; under them the masks
of attention, in which a row is a token that looks and a column what it may
look at. `show.py` is the command. In the order in which it happens:

  attention.py    which tokens a token may look at
  description.py  what is to be drawn of a view: its words, and numbers in masks
  palette.py      which colour means what
  panel.py        where the parts of one view's picture lie
  tokens.py       draws the tokens
  mask.py         draws a mask of attention
  legend.py       what the colours that occur mean
  figure.py       all panels, with heads and the legend, as a PNG

Glossary of shapes: B texts, T tokens, M tokens of memory, Q tokens that look,
V vocabulary.
"""

from infoword_tf.pictures.attention import seen, text_of
from infoword_tf.pictures.description import Picture, picture
from infoword_tf.pictures.figure import draw
from infoword_tf.pictures.palette import KINDS, NAMES

__all__ = ['KINDS', 'NAMES', 'Picture', 'draw', 'picture', 'seen', 'text_of']
