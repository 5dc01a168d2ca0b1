"""Ids to states: what all answers of a workdir are computed from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf import errors
from infoword_tf.config import Config
from infoword_tf.encoders import Encoded, Inputs
from infoword_tf.layers.block import take
from infoword_tf.layers.pooling import last_places, real_places
from infoword_tf.objectives.infonce import NEVER
from infoword_tf.objectives.objective import ANSWERS
from infoword_tf.resolve import answering
from infoword_tf.tensors import Tensor
from infoword_tf.text import strings
from infoword_tf.text.layout import Layout
from infoword_tf.text.template import Template, padded
from infoword_tf.workdir import Workdir

MIX = 'mix'  # all layers, with learned weights


class States:
    """The states of texts in a workdir's encoder: `states(ids, lengths)`.

    Attributes:
        workdir: the model, its tokenizer and config.
    """

    def __init__(self, workdir: Workdir):
        """Stores the workdir."""
        self.workdir = workdir

    # ------------------------------------------------------- texts to ids

    def format_texts(
        self,
        texts: Tensor,
        pairs: Tensor | None = None,
        max_length: int | None = None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns ids of texts [B], or of pairs of texts; graph or eager.

        Returns:
            ids [B, T], lengths [B] and second [B], as `__call__` takes them.
        """
        workdir = self.workdir
        return workdir.template.format(
            texts, pairs, max_length or workdir.max_length
        )

    def format_tokens(
        self, tokens: tf.RaggedTensor, max_length: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns ids [B, T] and lengths [B] of the tokens [B, None] of texts.

        Special tokens are added, and texts truncated at `max_length`.
        """
        workdir = self.workdir
        return padded(
            workdir.template.one(tokens, max_length or workdir.max_length),
            workdir.tokenizer.pad_id,
        )

    def format_role(self, texts: Tensor, role: str) -> tuple[Tensor, Tensor]:
        """Returns ids and lengths of texts [B] of a role in config.ROLES.

        With the prompt of the role, and truncated at its length.
        """
        config = self.workdir.config
        tokens = self.workdir.tokenizer.tokenize(
            self.prompted(texts, config.prompt_for(role))
        )
        return self.format_tokens(tokens, config.length_for(role))

    def prompted(
        self,
        texts: Sequence[strings.Text] | Tensor,
        prompt: str | None = None,
    ) -> Tensor:
        """Puts a prompt before each text [B]; args as `Config.prompt_text`."""
        before = self.workdir.config.prompt_text(prompt)
        texts = tf.convert_to_tensor(texts, tf.string)
        return tf.strings.join([before, texts]) if before else texts

    # ------------------------------------------------------- ids to states

    def __call__(
        self,
        ids: Tensor,
        lengths: Tensor,
        layers: Sequence[int] | str | None = None,
        places: Tensor | None = None,
        second: Tensor | None = None,
        segment_ids: Tensor | None = None,
        key: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Computes states of padded ids; graph or eager, any shape.

        Args:
            ids: [B, T] int32, with special tokens.
            lengths: [B] int32; beyond them is padding.
            layers: the layers whose mean is taken, 0 the embeddings, -1 or L
                the last; 'mix': all, with the weights that a row has learned
                for them, else equal ones (ELMo); None: the last.
            places: [B, P] int32, or None for all.
            second: [B] int32, where the second of two texts begins; None:
                each sequence is one text.
            segment_ids: [B, T] int32; None: as the layout has them.
            key: [2] uint32 of dropout, or None for inference.
            hidden: [B, T] int32, 1 for tokens that no token attends to; None:
                there are none.

        Returns:
            [B, P or T, D] float32.
        """
        encoded = self.encode(
            ids,
            lengths,
            all_layers=layers is not None,
            places=places,
            second=second,
            segment_ids=segment_ids,
            key=key,
            hidden=hidden,
        )
        if layers is None:
            return ops.cast(encoded.states, 'float32')
        mean = self.mean(encoded.layers, layers)
        return mean if places is None else take(mean, places)

    def encode(
        self,
        ids: Tensor,
        lengths: Tensor,
        all_layers: bool = False,
        places: Tensor | None = None,
        second: Tensor | None = None,
        segment_ids: Tensor | None = None,
        key: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> Encoded:
        """Runs the encoder; args as of `__call__`."""
        encoder = self.workdir.encoder
        padding = ops.logical_not(real_places(ids, lengths))
        if segment_ids is None:
            has_segments = encoder.arguments.get('segments', 0) > 1
            segment_ids = segments_of(
                self.workdir.layout,
                ids,
                lengths,
                second if has_segments else None,
            )
        with self.workdir.model.adapted()():
            return encoder(
                Inputs(
                    ids,
                    segment_ids=segment_ids,
                    block_ids=ops.cast(padding, 'int32'),
                    hidden=hidden,
                ),
                places=places,
                key=key,
                all_layers=all_layers,
            )

    def mean(
        self, states: Sequence[Tensor], layers: Sequence[int] | str
    ) -> Tensor:
        """Averages layers: L + 1 times [B, T, D] -> [B, T, D] float32.

        `layers` as of `__call__`; errors as of `check_layers`.
        """
        self.check_layers(layers)
        if not isinstance(layers, str):
            chosen = [ops.cast(states[i], 'float32') for i in layers]
            return sum(chosen) / len(chosen)
        row = self.mixing_row()
        if row is not None:
            return row.mixer(states)
        return sum(ops.cast(x, 'float32') for x in states) / len(states)

    def check_layers(self, layers: Sequence[int] | str | None) -> None:
        """Raises ValueError for layers that the encoder does not have."""
        depth = self.workdir.encoder.depth
        if isinstance(layers, str):
            if layers != MIX:
                raise errors.InputError(
                    'unknown_layers',
                    f'layers {layers!r}: take numbers from 0 to {depth}, or '
                    f'{MIX!r} for all',
                )
            return
        for layer in layers or ():
            if not -depth - 1 <= layer <= depth:
                raise errors.InputError(
                    'layer_out_of_range',
                    f'layer {layer}: there are 0 to {depth}',
                )

    # ---------------------------------------------------------------- rows

    def rows_that(self, *answers: str) -> list[str]:
        """Returns the rows that give one of the `answers` of `Row`."""
        return answering(answers, self.workdir.model.objectives)

    def row_that(self, *answers: str) -> str:
        """Returns the first of `rows_that`; ValueError: the model has none."""
        for row in self.rows_that(*answers):
            return row
        raise errors.InputError(
            'no_row_answers',
            f'{self.rows_text} {ANSWERS[answers[0]]}: that takes '
            f'{" or ".join(answering(answers))}',
        )

    @property
    def rows_text(self) -> str:
        """The subject of complaints: the rows, and why others are missing."""
        rows = ', '.join(self.workdir.model.objectives) or 'none'
        reasons = ''.join(
            f' ({row}: {why})' for row, why in self.workdir.missing.items()
        )
        return f'rows {rows}{reasons}'

    def mixing_row(self) -> Any:
        """Returns the row that has learned weights of layers, or None."""
        for row in self.rows_that('classes', 'numbers'):
            if self.workdir.model.objectives[row].mix:
                return self.workdir.model.objectives[row]
        return None


class Predictor:
    """An answer of a workdir, computed from states.

    Attributes:
        states: ids to states.
        workdir: the model, its tokenizer and config.
    """

    def __init__(self, states: States):
        """Stores states and workdir."""
        self.states, self.workdir = states, states.workdir

    @property
    def config(self) -> Config:
        """The config of the workdir."""
        return self.workdir.config

    def _token_log_p(self, scores: Tensor, *more: int) -> Tensor:
        """Turns scores [..., V] into log p of the tokens that texts have.

        `more`: ids of special tokens that have a probability, too.
        """
        tokenizer = self.workdir.tokenizer
        never = np.zeros(len(tokenizer), 'float32')
        never[list(tokenizer.control_ids)] = NEVER
        never[list(more)] = 0
        return ops.log_softmax(scores + never, axis=-1)

    def _best_tokens(
        self, scores: Tensor, top_k: int
    ) -> list[list[tuple[str, float]]]:
        """Returns the best tokens of each [P, V], with scores, best first."""
        tokenizer = self.workdir.tokenizer
        best = ops.top_k(scores, min(top_k, len(tokenizer)))
        return [
            [
                (tokenizer.vocabulary[i], float(value))
                for value, i in zip(values, ids, strict=True)
            ]
            for values, ids in zip(
                *map(ops.convert_to_numpy, best), strict=True
            )
        ]


def segments_of(
    layout: Layout, ids: Tensor, lengths: Tensor, second: Tensor | None = None
) -> Tensor | None:
    """Returns segments of padded ids, [B, T] int32; None: all are 0.

    Args as of `States.__call__`.
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


def cls_places(template: Template, ids: Tensor, lengths: Tensor) -> Tensor:
    """Returns the place of [CLS], which may be the last, [B, 1] int32."""
    if template.layout.first:
        return ops.zeros_like(last_places(lengths))
    return end_places(template, ids, lengths)


def end_places(template: Template, ids: Tensor, lengths: Tensor) -> Tensor:
    """Returns the last place of each text of ids [B, T] that is pooled, [B, 1]
    int32: that of a token other than `Layout.padding`, or else 0.
    """
    last = last_places(lengths)
    if template.padding is None:
        return last
    column = _column(ids)
    pads = ops.equal(ids, template.padding)
    known = ops.where(pads | (column > last), 0, column)
    return ops.max(known, axis=1, keepdims=True)


def _column(ids: Tensor) -> Tensor:
    """Returns 0, 1, ..., T - 1, [1, T] int32."""
    return ops.arange(ops.shape(ids)[1], dtype='int32')[None, :]
