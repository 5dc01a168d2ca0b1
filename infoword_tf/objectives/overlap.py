"""The row `overlap`: a masked word from two cuts of the text around it.

    row      a                              b            candidates
    overlap  two masked cuts of a text      masked word  the whole vocabulary
             that overlap, in one row

`mlm` asks what word goes with a text. Here the text is there twice, beginning
and ending elsewhere and with other words masked, and a word that is masked in
one cut can often be read in the other: next to the same words, at a distance
that is another one in every row. So the model learns to look for what two texts
have in common, from text alone, as `tlm` does from translations (Conneau and
Lample 2019, §3.3). Words that are masked in both cuts, or are in one alone, are
asked as in `mlm`.

Caciularu et al. (2021, "CDLM") mask documents about one event that stand in one
text, and Ram et al. (2021, "Splinter") ask which span of a passage a masked one
is equal to. Both need text that says things twice; here all text does.

Glossary of shapes: as in `mlm.py`.
"""

import dataclasses
from typing import ClassVar

from infoword_tf.objectives.mlm import MLM, MaskedPieces
from infoword_tf.views import Reads

VIEW = 'overlap'


class OverlapPieces(MaskedPieces):
    """`overlap`: Eq. 1 over the vocabulary, as in `mlm`."""

    view: ClassVar[str] = VIEW


OVERLAP = dataclasses.replace(
    MLM,
    objective=OverlapPieces,
    a='two masked cuts of a text that overlap',
    relation='the word that stood at the place, which the other cut may show',
    views={VIEW: Reads('tokens', source='windows')},
    begins_as='mlm',
)
