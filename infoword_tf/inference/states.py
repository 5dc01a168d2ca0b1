"""Ids to states: what all answers of a workdir are made from.

Glossary of shapes: B texts of a batch, T tokens, Q places, D width, L layers.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from keras import ops

from infoword_tf import files
from infoword_tf.config import Config
from infoword_tf.encoders import Encoded, Inputs
from infoword_tf.layers.block import take
from infoword_tf.model import Model
from infoword_tf.objectives.infonce import NEVER
from infoword_tf.objectives.row import ANSWERS
from infoword_tf.plan import answering
from infoword_tf.text.layout import Layout
from infoword_tf.workdir import Workdir

Tensor = Any


class States(Workdir):
    """A workdir that reads texts."""

    # ------------------------------------------------------------ variants

    def with_config(self, config: Config, model: Model | None = None) -> Self:
        """The same with another config, and with another model of it."""
        missing = {k: v for k, v in self.missing.items() if k in config.rows}
        return type(self)(
            model or self.model, self.tokenizer, config, self.unigram, missing
        )

    def with_layout(self, layout: str | Layout) -> Self:
        """Copies the model with other tokens around a text: see `layout_of`."""
        if layout == self.config.layout:
            return self
        return self.with_config(self.config.replace(layout=layout))

    def untrained(self, seed: int = 0) -> Self:
        """The same model with fresh weights: a baseline."""
        return self._fresh(self.config, seed)

    def shortened(self, numbers: Sequence[int]) -> Self:
        """An encoder of some layers of this one, from 1 on, and no rows.

        Raises: ValueError: it has no such layers.
        """
        depth = self.encoder.depth
        if not set(numbers) <= set(range(1, depth + 1)):
            raise ValueError(
                f'layers {", ".join(map(str, numbers))} are asked for, but '
                f'this encoder has {depth}'
            )

        def origin(path: str) -> str:
            layer = re.match(r'encoder/layer_(\d+)/', path)
            if not layer:
                return path
            number = numbers[int(layer[1])] - 1
            return f'encoder/layer_{number}/{path[layer.end() :]}'

        old = self.model.variables
        return self._remade(
            lambda path: old[origin(path)].numpy(), rows={}, layers=len(numbers)
        )

    @functools.cached_property
    def folded(self) -> Self:
        """The same vectors, with weights of pieces inside the table.

        Itself where pieces have none. What is trained on has them apart.
        """
        if not self.config.encoder.arguments.get('weighted'):
            return self
        old = self.model.variables
        table = self.encoder.embedding_table.path
        weights = self.encoder.piece_weights.numpy()[:, None]

        def value(path: str) -> np.ndarray:
            found = old[path].numpy()
            return found * weights if path == table else found

        return self._remade(value, weighted=False)

    def _remade(
        self,
        value: Callable[[str], np.ndarray],
        rows: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Self:
        """One of other arguments of the encoder, by the value of a path."""
        encoder = self.config.encoder
        encoder = dataclasses.replace(
            encoder, arguments={**encoder.arguments, **arguments}
        )
        rows = self.config.rows if rows is None else rows
        remade = self._fresh(self.config.replace(encoder=encoder, rows=rows))
        weights = remade.model.variables
        files.assign(
            weights, {path: value(path) for path in weights}, 'another encoder'
        )
        return remade

    def _fresh(self, config: Config, seed: int | None = None) -> Self:
        """A model of a config, with the rows of this one; args as `Model`."""
        precision = self.model.config.precision
        model = Model(
            config.replace(precision=precision),
            self.tokenizer.specials,
            seed,
            auxiliaries=False,
        )
        fresh = self.with_config(config, model)
        for row in fresh.missing:
            model.drop(row)
        return fresh

    # ---------------------------------------------------------------- rows

    def rows_that(self, *answers: str) -> list[str]:
        """Rows of the model that give one of these answers (`Row.answers`)."""
        return answering(answers, self.model.objectives)

    def row_that(self, *answers: str) -> str:
        """The first of them; ValueError: there is none."""
        for row in self.rows_that(*answers):
            return row
        raise ValueError(
            f'{self._rows} {ANSWERS[answers[0]]}: that takes '
            f'{" or ".join(answering(answers))}'
        )

    @property
    def _rows(self) -> str:
        """The rows, for complaints."""
        rows = ', '.join(self.model.objectives) or 'none'
        reasons = ''.join(
            f' ({row}: {why})' for row, why in self.missing.items()
        )
        return f'rows {rows}{reasons}'

    # ------------------------------------------------------- ids to states

    def laid_out(
        self,
        texts: Tensor,
        pairs: Tensor | None = None,
        max_length: int | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ids of texts [B], or of pairs of them; graph or eager.

        Returns:
            ids, lengths and second, as `states` takes them.
        """
        return self.template.laid_out(
            texts, pairs, max_length or self.max_length
        )

    def states(
        self,
        ids: Tensor,
        lengths: Tensor,
        layers: Sequence[int] | str | None = None,
        places: Tensor | None = None,
        second: Tensor | None = None,
        segment_ids: Tensor | None = None,
        key: Tensor | None = None,
    ) -> Tensor:
        """States of padded ids; graph or eager, any shape.

        Args:
            ids: [B, T] int32, with specials.
            lengths: [B] int32; what follows in a row is padding.
            layers: of which layers the mean is taken, 0 the embeddings, -1
                or L the last; 'mix': of all, with the weights that a row has
                learned for them, else alike (ELMo); None: the last.
            places: [B, Q] int32, or None for all.
            second: [B] int32, where the second of two texts begins; None:
                there is one.
            segment_ids: [B, T] int32; None: as the layout has them.
            key: [2] uint32 of dropout, or None for inference.

        Returns:
            [B, Q or T, D] float32.
        """
        every = layers is not None
        encoded = self._encoded(
            ids, lengths, every, places, second, segment_ids, key
        )
        if layers is None:
            return ops.cast(encoded.states, 'float32')
        mean = self._mean(encoded.layers, layers)
        return mean if places is None else take(mean, places)

    def _mean(
        self, every: Sequence[Tensor], layers: Sequence[int] | str
    ) -> Tensor:
        """L + 1 times [B, T, D] -> [B, T, D] float32; args as of `states`."""
        if layers != 'mix':
            chosen = [ops.cast(every[i], 'float32') for i in layers]
            return sum(chosen) / len(chosen)
        row = self._mixing_row()
        if row is not None:
            return row.mixer(every)
        return sum(ops.cast(x, 'float32') for x in every) / len(every)

    def _mixing_row(self) -> Any:
        """The row that has learned weights of layers; None: there is none."""
        for row in self.rows_that('classes', 'numbers'):
            if self.model.objectives[row].mix:
                return self.model.objectives[row]
        return None

    def _encoded(
        self,
        ids: Tensor,
        lengths: Tensor,
        all_layers: bool = False,
        places: Tensor | None = None,
        second: Tensor | None = None,
        segment_ids: Tensor | None = None,
        key: Tensor | None = None,
    ) -> Encoded:
        """What the encoder gives; args as in `states`."""
        padding = ops.logical_not(real_places(ids, lengths))
        if segment_ids is None:
            knows = self.encoder.arguments.get('segments', 0) > 1
            segment_ids = segments_of(
                self.layout, ids, lengths, second if knows else None
            )
        return self.encoder(
            Inputs(
                ids,
                segment_ids=segment_ids,
                block_ids=ops.cast(padding, 'int32'),
            ),
            places=places,
            key=key,
            all_layers=all_layers,
        )

    def _pieces_log_p(self, scores: Tensor, *more: int) -> Tensor:
        """[..., V] scores to log p: of pieces that a text has, and of more."""
        never = np.zeros(len(self.tokenizer), 'float32')
        never[list(self.tokenizer.control_ids)] = NEVER
        never[list(more)] = 0
        return ops.log_softmax(scores + never, axis=-1)

    def _best_pieces(
        self, scores: Tensor, top_k: int
    ) -> list[list[tuple[str, float]]]:
        """The best pieces of each [N, V], with their scores, best first."""
        best = ops.top_k(scores, min(top_k, len(self.tokenizer)))
        return [
            [
                (self.tokenizer.vocabulary[i], float(value))
                for value, i in zip(values, found, strict=True)
            ]
            for values, found in zip(
                *map(ops.convert_to_numpy, best), strict=True
            )
        ]


def segments_of(
    layout: Layout, ids: Tensor, lengths: Tensor, second: Tensor | None = None
) -> Tensor | None:
    """Segments of padded ids in a layout, [B, T] int32; None: all are 0.

    Args: as of `States.states`.
    """
    segment_ids = None
    if layout.last_segment is not None:
        last = ops.equal(_column(ids), last_places(lengths))
        segment_ids = layout.last_segment * ops.cast(last, 'int32')
    if second is not None and layout.second_segment:
        of_second = ops.greater_equal(_column(ids), second[:, None])
        # No cast of booleans, which LiteRT's converter makes wrong here.
        inside = ops.where(of_second, layout.second_segment, 0)
        segment_ids = (
            inside
            if segment_ids is None
            else ops.where(last, segment_ids, inside)
        )
    return segment_ids


def real_places(ids: Tensor, lengths: Tensor) -> Tensor:
    """[B, T] bool: what is no padding."""
    return ops.less_equal(_column(ids), last_places(lengths))


def _column(ids: Tensor) -> Tensor:
    """[1, T] int32: 0, 1, 2, ..."""
    return ops.arange(ops.shape(ids)[1], dtype='int32')[None, :]


def last_places(lengths: Tensor) -> Tensor:
    """[B, 1] int32: the last place of each text."""
    return ops.convert_to_tensor(lengths, dtype='int32')[:, None] - 1
