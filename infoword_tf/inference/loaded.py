"""A trained workdir in memory: strings in, answers out.

    model = infoword_tf.load('runs/quickstart')
    model.encode(['a sentence', 'another'])        # float32 [2, D]
    model.fill_mask('read a [MASK] file')
    model.next_pieces('returns a list of')         # rows of next words
    model.classify(['a question'], ['a passage'])  # converted classifiers
    model.answer(['who?'], ['a long context'])

Every workdir gives vectors; what else it answers depends on its rows
(`Row.answers`).
"""

import functools
from collections.abc import Sequence

from infoword_tf.inference.blanks import Blanks
from infoword_tf.inference.classes import Classes
from infoword_tf.inference.continuing import Continuing
from infoword_tf.inference.reader import Reader, Reply
from infoword_tf.inference.vectors import Vectors


class Loaded(Vectors, Blanks, Continuing, Classes):
    """A workdir in memory, with all that it may be asked."""

    def answer(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        batch_size: int = 32,
    ) -> list[Reply]:
        """Answers out of contexts; see `reader.Reader.answer`."""
        return self.reader.answer(questions, contexts, batch_size)

    @functools.cached_property
    def reader(self) -> Reader:
        """The row of spans at work; ValueError: there is none."""
        return Reader(self)
