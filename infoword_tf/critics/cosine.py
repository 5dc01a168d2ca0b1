"""The critic `cosine`: one vector of a text.

Of `simcse` the vector is pooled, goes through dense layers and perhaps a head
that training alone has; of `ict` learned.py pools. What is only of vectors is
here: cut features and tokens, prefixes beside a head, hard negatives, a queue.

Shapes: J examples of a sequence, S texts of an example, N = B J, E width of an
exported vector, F of a compared one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infoword_tf.config import Config
from infoword_tf.critics.form import Compared
from infoword_tf.critics.vector import VectorCritic
from infoword_tf.encoders import Encoded, Inputs
from infoword_tf.errors import InputError
from infoword_tf.layers import dropout
from infoword_tf.layers.dense import Dense
from infoword_tf.layers.pooling import LAYER_MEANS, of_texts, pool, unit
from infoword_tf.layers.projector import Projector
from infoword_tf.lazy import ops
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View

COSINE = 'cosine'
CLS, MEAN = 'cls', 'mean'
NO_HEAD, IN_TRAINING, KEPT, PROJECTOR = HEADS = (
    'none', 'training', 'kept', 'projector',
)  # fmt: skip


class Cosine(VectorCritic):
    """The cosine of two vectors, which the config makes, not a head."""

    name = COSINE
    help = 'the cosine of their vectors (cosine)'
    has_vector = has_dims = True
    similarity = None
    symmetric = False
    lacks = {}

    @classmethod
    def answer(cls) -> None:
        """Implements `Critic.answer`: texts are vectors."""

    @classmethod
    def tokenize(cls, loaded: Any, texts: list[str], role: str | None) -> Any:
        """Implements `Critic.tokenize`; no role: with the default prompt."""
        return loaded.tokenize(texts, role and loaded.config.prompt_for(role))

    @classmethod
    def encode(
        cls, loaded: Any, texts: Any, role: str | None, **settings: Any
    ) -> np.ndarray:
        """Implements `Critic.encode`; no role: with the default prompt."""
        if not isinstance(texts, list):
            return loaded.encode_tokenized(texts, **settings)
        prompt = None if role is None else loaded.config.prompt_for(role)
        return loaded.encode(texts, prompt=prompt, **settings)

    @classmethod
    def signature_of(cls, config: Config, role: str, folder: Any) -> str:
        """Implements `Critic.signature_of`: that of the prompt of the role."""
        prompt = config.prompt_for(role)
        if not prompt and config.prompt_text():
            raise InputError(
                'export_prompts_alone',
                f'{folder} puts the prompt {config.prompt!r} before every '
                f'text, and has none for a {role}; export it again from '
                'weights that have one, be it empty',
            )
        return f'{cls.signature}_{prompt}' if prompt else cls.signature

    def compared(
        self,
        sides: tuple[Tensor, Tensor],
        states: Tensor,
        are_passages: bool,
        width: int | None,
        key: Tensor | None,
    ) -> Tensor:
        """Implements `Critic.compared`; both sides are alike."""
        return self.scores(sides[not are_passages], states, width, key)


class SentenceCosine(Cosine):
    """The cosine of sentences, of the row `simcse`.

    Attributes:
        train_head: layer that training alone has, or None.
        exported_width: E.
        whole_width: numbers of the vector that is compared as a whole.
        concatenates: whether the exported vector stands behind that one, since
            prefixes are of it.
    """

    usual_temperature = 0.05
    lacks = {'expand': ()}
    pooling: str = setting(
        CLS,
        'How states become a vector: [CLS], or the mean over the last layer, '
        'over the first and the last, or over the last two.',
        choices=(CLS, MEAN, *LAYER_MEANS),
    )
    head: str = setting(
        IN_TRAINING,
        'A dense layer with tanh over the vector: only in training (SimCSE '
        'without pairs), or kept (SimCSE with pairs); projector: two layers '
        'with norms over the batch, only in training (DiffCSE, InfoCSE); none: '
        'no such layer.',
        choices=HEADS,
    )
    hardness: float = setting(
        0.0,
        'Weight of a negative in the loss: exp(hardness cosine), relative to '
        'the other negatives (Robinson et al. 2021); 0: all weigh the same.',
        at_least=0.0,
    )
    cut_features: float = setting(
        0.0,
        'Share of the features of the first text that are 0 in all of its '
        'embeddings, drawn anew each time (ConSERT: 0.2).',
        at_least=0.0,
        at_most=0.99,
    )
    cut_tokens: float = setting(
        0.0,
        'Share of the tokens of the first text whose embeddings are 0 '
        '(ConSERT: 0.15).',
        at_least=0.0,
        at_most=0.99,
    )

    # ------------------------------------------------------- of a row, as data

    @classmethod
    def reads(cls, settings: Mapping[str, Any]) -> Reads:
        """Implements `Critic.reads`; cut texts are encoded in the step."""
        pooling = settings['pooling']
        return Reads(
            'example' if pooling == CLS else 'text',
            encoders=() if _cuts(settings) else ('encoder',),
            layers=pooling in LAYER_MEANS,
        )

    @classmethod
    def takes_lookup(cls, settings: Mapping[str, Any]) -> bool:
        """Implements `Critic.takes_lookup`."""
        return settings['pooling'] == MEAN and not _cuts(settings)

    @classmethod
    def vector(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Implements `Critic.vector`."""
        dense = ('tanh',) if settings['head'] == KEPT else ()
        return {'pooling': settings['pooling'], 'dense': dense}

    # --------------------------------------------------- of a row, in training

    def build(self) -> None:
        """Makes the head that training alone has."""
        self.train_head: Dense | Projector | None = None
        width = self.row.encoder.width
        if self.head == IN_TRAINING:
            self.train_head = Dense(width, width, 'tanh', name='head')
        elif self.head == PROJECTOR:
            self.train_head = Projector(width, name='head')
        self.row.train_head = self.train_head  # so that the row owns it
        if self.train_head:
            self.train_head.build()
            paths = {weight.path for weight in self.train_head.weights}
            self.row.not_exported |= paths

    @property
    def normed(self) -> bool:
        """True of a projector."""
        return self.head == PROJECTOR

    def set_dense(self, dense: Sequence[Any]) -> None:
        """Sets the dense layers, which decide how wide an exported vector is.

        Raises:
            ValueError: a head of training does not fit.
        """
        self.dense, width = list(dense), self.row.encoder.width
        self.exported_width = self.dense[-1].wide if self.dense else width
        if self.train_head and self.exported_width != width:
            name = self.row.row
            raise InputError(
                'head_of_other_width',
                f'--{name}.head={self.head} is over {width} numbers, and '
                f'vectors of --init have {self.exported_width} behind its last '
                f'layer; give --{name}.head={NO_HEAD}',
            )
        self.whole_width = width if self.train_head else self.exported_width

    @property
    def width(self) -> int:
        """E."""
        return self.exported_width

    def set_prefixes(self, widths: Sequence[int]) -> None:
        """Sets `prefixes` and `concatenates`.

        Prefixes are of the exported vector. With a head that is not exported
        both are compared: the head's output, then the exported vector.
        """
        super().set_prefixes(widths)
        if self.train_head:
            self.prefixes = list(widths)
        self.concatenates = bool(self.train_head and self.prefixes)

    @property
    def key_width(self) -> int:
        """F."""
        exported = self.exported_width if self.concatenates else 0
        return self.whole_width + exported

    def encoded(self, batch: Any, name: str) -> Encoded:
        """Encodes texts, with features or tokens cut out."""
        if not (self.cut_features or self.cut_tokens):
            return super().encoded(batch, name)
        view = batch.views[name]
        return batch.encode(
            Inputs(
                view.ids,
                view.positions,
                block_ids=view.block_ids,
                multipliers=self.cut_mask(batch, view),
            ),
            name=name,
            places=view.places[self.row.row] if self.pooling == CLS else None,
            all_layers=self.pooling in LAYER_MEANS,
        )

    def cut_mask(self, batch: Any, view: View) -> Tensor:
        """Draws [B, T, E] float32: 0 for cut features of first texts, else 1.

        Of each text a share of the features is cut, after the norm of the
        embeddings, and a share of the tokens, special tokens too (Yan et al.
        2021, "ConSERT", §3.2, and its code).
        """
        rows, slots, texts = view.targets[self.row.row].shape
        number = ops.cast(view.block_ids, 'int32')  # of each token's text
        first = ops.equal(number % texts, 0) & (number < slots * texts)
        key = dropout.fold_in(batch.key, batch.replicas.id)
        width = self.row.encoder.embedding_width  # E
        u = dropout.uniform(dropout.fold_in(key, 0), (rows, slots, width))
        edge = int(self.cut_features * width)
        lowest = ops.sort(u, axis=-1)[..., edge : edge + 1]
        features = ops.cast(u >= lowest, 'float32')  # [B, J, E]
        slot = ops.minimum(number // texts, slots - 1)
        features = ops.take_along_axis(features, slot[..., None], axis=1)
        # Of n tokens int(share n) are cut: the lowest draws.
        u = dropout.uniform(dropout.fold_in(key, 1), number.shape)
        same = ops.cast(number[:, :, None] == number[:, None], 'float32')
        lower = ops.cast(u[:, None] < u[:, :, None], 'float32')
        rank = ops.sum(same * lower, axis=2)
        most = ops.floor(self.cut_tokens * ops.sum(same, axis=2))
        mask = features * ops.cast(rank >= most, 'float32')[..., None]
        return ops.where(first[..., None], mask, 1.0)

    def pooled(self, batch: Any, texts: Compared, encoded: Encoded) -> Tensor:
        """Pools all texts, [N S, D] float32."""
        if self.pooling == CLS:
            states = ops.cast(encoded.states, 'float32')  # [B, J S, D]
            return ops.reshape(states, (-1, states.shape[-1]))
        if self.pooling == MEAN:
            return super().pooled(batch, texts, encoded)
        real = of_texts(texts.view.block_ids, texts.slots)
        at = LAYER_MEANS[self.pooling]
        return sum(pool(encoded.layer(i), real) for i in at) / len(at)

    def _exported(self, vectors: Tensor) -> Tensor:
        """Applies the exported dense layers: [..., D] -> [n, E]."""
        x = ops.reshape(vectors, (-1, vectors.shape[-1]))
        for layer in self.dense:
            x = layer(x)
        return x

    def _through_head(
        self, batch: Any, x: Tensor, texts: Compared, norm: Any = None
    ) -> tuple[Tensor, Any]:
        """Applies the head to exported [n, E]; also returns moments."""
        head = self.train_head
        if head is None:
            return x, None
        if self.normed:
            return head(
                ops.cast(x, 'float32'),
                ops.reshape(texts.weights, (-1,)),
                gather=batch.replicas.gather,
                moments=norm,
            )
        return head(x), None

    def projected(
        self, batch: Any, texts: Compared, pooled: Tensor, norm: Any = None
    ) -> Tensor:
        """Applies the dense layers, then the head: [..., D] -> [..., D].

        Args as of `finished`, of [N, D] or [N, S, D].
        """
        x = self._exported(pooled)
        x, _ = self._through_head(batch, x, texts, norm)
        return ops.reshape(x, (*ops.shape(pooled)[:-1], x.shape[-1]))

    def finished(
        self, batch: Any, texts: Compared, pooled: Tensor, norm: Any = None
    ) -> Tensor:
        """Computes the compared vectors [..., F], each part of length 1."""
        exported = self._exported(pooled)
        x, _ = self._through_head(batch, exported, texts, norm)
        shape = ops.shape(pooled)[:-1]
        parts = [x, exported] if self.concatenates else [x]
        parts = [unit(ops.reshape(x, (*shape, x.shape[-1]))) for x in parts]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)

    def norm(self, batch: Any, texts: Compared, pooled: Tensor) -> Any:
        """Computes a projector's moments."""
        if not self.normed:
            return None
        return self._through_head(batch, self._exported(pooled), texts)[1]

    def part(self, texts: Tensor, width: int | None) -> Tensor:
        """Returns a prefix of exported vectors, of length 1, or the whole."""
        if width:
            begin = self.whole_width if self.concatenates else 0
            return unit(texts[..., begin : begin + width])
        return texts[..., : self.whole_width] if self.concatenates else texts

    def of_queue(
        self, temperature: float, width: int | None
    ) -> dict[str, Any]:
        """Implements `Critic.of_queue`."""
        whole = not (width or self.concatenates)
        return {
            'sharpness': self.hardness * temperature,
            'finish': None if whole else lambda x: self.part(x, width),
        }

    def hardened(
        self, others: Tensor, scores: Tensor, earlier: Any
    ) -> tuple[Tensor, Any]:
        """Weighs negatives by exp(hardness cosine), relative to the others."""
        if not self.hardness:
            return others, earlier
        hard = ops.exp(self.hardness * ops.stop_gradient(scores))
        total = ops.sum(others * hard, axis=1, keepdims=True)
        size = ops.sum(others, axis=1, keepdims=True)
        if earlier is not None:
            total = total + earlier.weight[:, None]
            size = size + earlier.size[:, None]
            scale = ops.log(ops.maximum(size, 1.0))[:, 0]
            scale = scale - ops.log(ops.maximum(total, 1e-12))[:, 0]
            earlier = earlier._replace(others=earlier.others + scale)
        return others * hard * size / ops.maximum(total, 1e-12), earlier


def _cuts(settings: Mapping[str, Any]) -> bool:
    return bool(settings['cut_features'] or settings['cut_tokens'])
