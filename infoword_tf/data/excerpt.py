"""The views that rows read of a few sentences, as a run would read them.

A corpus of copies of the sentences goes the way of every corpus: token store,
sources, batches.
"""

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from infoword_tf.data import store as stores
from infoword_tf.data.batches import Batches, open_source
from infoword_tf.data.documents import Document
from infoword_tf.data.text_pairs import Columns
from infoword_tf.data.translations import ParallelText, tokenized
from infoword_tf.data.windows import WindowSource
from infoword_tf.plan import Plan, SourceSpec

BATCH = 8  # rows that are made, so that there are others; one is drawn


class FromTheBeginning(WindowSource):
    """Windows that all begin where the text does."""

    def starts(self, step: int) -> np.ndarray:
        """Zeros [B]."""
        return np.zeros(self.batch_size, np.int64)


def make_views(
    sentences: Sequence[str],
    tokenizer: Any,
    plan: Plan,
    length: int,
    seed: int,
    steps: int = 1,
) -> list[dict[str, Any]]:
    """The views that rows read of a text of some sentences, by step.

    Args:
        sentences: at least two; they come again until a batch is full. Of
            views of translations each two are one.
        tokenizer: a `text` tokenizer, or `text.wordtokenizer.WordTokenizer`.
        steps: how many go on from each other.
    """
    document = Document(tuple(sentences), 'the command line')
    pieces = tokenizer.pieces([s.encode() for s in sentences])
    copies = 8 + 2 * BATCH * (steps + 1) * length // (len(pieces.ids) + 1)
    with tempfile.TemporaryDirectory() as folder:
        store = stores.write_store(
            pathlib.Path(folder) / 'text',
            [document] * copies,
            tokenizer,
            progress=False,
        )
        sources = {
            source_spec: open_source(
                _translations(sentences, tokenizer, length)
                if source_spec.reads == 'translations'
                else store,
                _whole(source_spec),
                BATCH,
                seed,
            )
            for source_spec in plan.source_specs
        }
        for source_spec in sources:
            if source_spec.source == 'windows':
                sources[source_spec] = FromTheBeginning(
                    store,
                    batch_size=BATCH,
                    seed=seed,
                    **dict(source_spec.arguments),
                )
        batches = Batches(sources, plan, tokenizer.specials, seed)
        return [batches.views(step) for step in range(steps)]


def _translations(
    sentences: Sequence[str], tokenizer: Any, length: int
) -> ParallelText:
    """Each sentence and the next one, as if they said the same, repeatedly."""
    firsts, seconds = (
        list(sentences[side : len(sentences) // 2 * 2 : 2]) * 2 * BATCH
        for side in (0, 1)
    )
    columns = Columns('the command line', [firsts, seconds], 0)
    return ParallelText({'': tokenized(columns, tokenizer, length)})


def _whole(source_spec: SourceSpec) -> SourceSpec:
    """The same without words that are dropped: each is too frequent here."""
    arguments = dict(source_spec.arguments)
    if 'subsample' in arguments:
        arguments['subsample'] = 0.0
    return source_spec._replace(arguments=tuple(arguments.items()))
