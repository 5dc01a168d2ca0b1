"""One number for two texts that are encoded as one: rerankers.

It is that of a critic of pairs, or of a row of people's labels that gives a
pair one number, as public rerankers have it.

Glossary of shapes: n pairs.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from infoword_tf import commands, errors
from infoword_tf.critics import CRITICS
from infoword_tf.critics.cross import scoring
from infoword_tf.inference.classes import Classes
from infoword_tf.inference.states import Predictor, cls_places
from infoword_tf.tensors import Tensor
from infoword_tf.text import strings


class PairScores(Predictor):
    """The scores that a workdir gives pairs of texts."""

    @functools.cached_property
    def _rows(self) -> list[str]:
        """The rows that score pairs."""
        rows = {
            row: self.config.rows[row] for row in self.workdir.model.objectives
        }
        classes = Classes(self.states)
        return [row for row in scoring(rows) if 2 in classes.sides(row)]

    @property
    def _head(self) -> Any:
        """The layer of a critic that scores pairs; None: none."""
        for name, critic in CRITICS.items():
            if critic.of_pairs and critic.of(self.config) is not None:
                return self.workdir.model.critics[name]
        return None

    @property
    def available(self) -> bool:
        """True if the model scores pairs."""
        return self._head is not None or bool(self._rows)

    @property
    def row(self) -> str | None:
        """The row that scores; None: the critic does.

        Raises:
            ValueError: this model scores no pairs.
        """
        if self._head is not None:
            return None
        for row in self._rows:
            return row
        raise errors.InputError(
            'no_score_of_pairs',
            f'{self.states.rows_text} give a pair of texts no score; train '
            'with --simcse.critic=cross, or bring a reranker in',
        )

    def pair_scores(
        self, ids: Tensor, lengths: Tensor, second: Tensor
    ) -> Tensor:
        """Computes the critic's score of each pair, [B, 1] float32.

        Args as of `States.__call__`; graph or eager.
        """
        places = cls_places(self.workdir.template, ids, lengths)
        states = self.states(ids, lengths, places=places, second=second)
        return self._head.scores(states)

    def text_scores(
        self,
        queries: Tensor,
        passages: Tensor,
        compute: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        """Computes the scores of strings [B]: [B] float32; graph or eager.

        `compute` as of `Classes.text_scores`.
        """
        if self.row is not None:
            classes = Classes(self.states)
            of_row = classes.text_scores(queries, passages, self.row, compute)
            return of_row[:, 0]
        config, workdir = self.config, self.workdir
        queries, passages = (
            self.states.prompted(texts, config.prompt_for(role))
            for role, texts in (('query', queries), ('passage', passages))
        )
        limits = config.query_length, config.passage_length
        inputs = workdir.template.format(
            queries, passages, workdir.max_length, limits
        )
        return (compute or self.pair_scores)(*inputs)[:, 0]

    def score_pairs(
        self,
        queries: Sequence[strings.Text],
        passages: Sequence[strings.Text],
        batch_size: int = 32,
        progress: bool = False,
    ) -> np.ndarray:
        """Scores pairs of a query and a passage: higher is more relevant.

            model.score_pairs(['who wrote it?'], ['Ada wrote the notes.'])

        Args:
            queries, passages: n strings each.
            batch_size: pairs encoded at once, of like length.
            progress: shows a bar for more than one batch.

        Returns:
            float32 [n], a logit: nats over that of another passage.

        Raises:
            TypeError: one string instead of a sequence of strings, or an
                entry that is no text.
            ValueError: this model scores no pairs; different numbers of both.
        """
        queries = strings.checked(queries, 'queries')
        passages = strings.checked(passages, 'passages')
        if len(queries) != len(passages):
            raise errors.InputError(
                'unequal_pairs_to_score',
                f'{len(queries)} queries and {len(passages)} passages; give '
                'one passage for each query',
            )
        scores = np.zeros(len(queries), np.float32)
        graph = self._graph
        both = zip(queries, passages, strict=True)
        sizes = [len(query) + len(passage) for query, passage in both]
        order = np.argsort(sizes, kind='stable')[::-1]
        with commands.bar(
            total=len(order), unit=' pairs',
            disable=not progress or len(order) <= batch_size,
        ) as bar:  # fmt: skip
            for begin in range(0, len(order), batch_size):
                batch = order[begin : begin + batch_size]
                scores[batch] = graph(
                    *(tf.constant([side[i] for i in batch], tf.string)
                      for side in (queries, passages))
                )  # fmt: skip
                bar.update(len(batch))
        return scores

    @functools.cached_property
    def _graph(self) -> Any:
        """A graph of strings [B] and [B] to scores [B]."""
        _ = self.row  # complains before the work
        return tf.function(
            lambda *texts: self.text_scores(*texts),
            input_signature=[tf.TensorSpec((None,), tf.string)] * 2,
            autograph=False,
        )
