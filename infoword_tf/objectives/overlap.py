"""The row `overlap`: a masked word from two cuts of the text around it.

    row      a                              b            candidates
    overlap  two masked cuts of a text      masked word  the whole vocabulary
             that overlap, in one row

`mlm` asks what word goes with a text. Here two cuts of the text, with different
ends and different words masked, share a sequence, and a word that is masked in
one cut can often be read in the other: next to the same words, at a distance
that differs from sequence to sequence. So the model learns to look for what two
texts have in common, from text alone, as `tlm` does from translations (Conneau
and Lample 2019, §3.3). Words that are masked in both cuts, or are in one alone,
are predicted as in `mlm`.

Caciularu et al. (2021, "CDLM") mask documents about one event that stand in one
text, and Ram et al. (2021, "Splinter") ask which span of a passage a masked one
is equal to. Both need text that says things twice; here all text does.
"""

import dataclasses
from typing import ClassVar

from infoword_tf.objectives.mlm import MLM, MaskedTokens
from infoword_tf.views import Reads

VIEW = 'overlap'


class OverlapTokens(MaskedTokens):
    """`overlap`: `mlm` over two overlapping cuts of a text.

    Learns: to compare two texts, besides what `mlm` learns.
    Take it: before fine-tuning on pairs of texts (paraphrase, inference),
        with `same_text`.
    Needs: any text.
    Example: python -m infoword_tf.train --objectives=overlap:1,same_text:1
        --workdir=W
    """

    view: ClassVar[str] = VIEW


OVERLAP = dataclasses.replace(
    MLM,
    objective=OverlapTokens,
    a='two masked cuts of a text that overlap',
    relation='the token that was masked, which the other cut may show',
    views={VIEW: Reads('tokens', source='windows')},
    begins_as='mlm',
)
