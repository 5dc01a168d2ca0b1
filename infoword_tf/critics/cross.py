"""The critic `cross`: one encoder over both texts (monoBERT).

    f(a, b) = w . g_omega([CLS] a [SEP] b [SEP]) + c

(Nogueira & Cho 2019, "Passage re-ranking with BERT"). No text is a vector, so
each candidate of an a is encoded with it: b, b of a few other examples of the
batch, and the negatives of the example itself.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from infoword_tf.config import Config
from infoword_tf.critics.critic import Critic, HeadConfig, Start
from infoword_tf.errors import InputError
from infoword_tf.layers import dropout
from infoword_tf.layers.scores import NO_POOLER, PairScore
from infoword_tf.tensors import Tensor
from infoword_tf.views import Specials

CROSS = 'cross'


@dataclasses.dataclass(frozen=True)
class CrossConfig(HeadConfig):
    """Score of two texts that are encoded as one.

    Attributes:
        pooler: dense layer before the score, as of the row `label`.
    """

    pooler: str = NO_POOLER


class CrossCritic(Critic):
    """A score of two texts that are encoded as one."""

    name = CROSS
    help = 'the encoder, which reads both at once (cross, monoBERT)'
    head_config = CrossConfig
    of_pairs = True
    described = 'the score of a pair of texts'
    public = 'CrossEncoder'
    signature = 'score_pairs'
    card = (
        'the score of a query with a passage that is encoded beside it '
        '(`score_pairs`)'
    )
    has_dims = False
    lacks = {
        'queue': (), 'momentum': (), 'guide': (), 'dims': (),
        'directions': ('both', 'joint'), 'expand': (),
    }  # fmt: skip

    @classmethod
    def decide(cls, chosen: Mapping[str, Any], start: Start) -> CrossConfig:
        """Keeps the dense layer of --init, if any."""
        del chosen
        if start.config is None:
            return CrossConfig()
        if (old := cls.of(start.config)) is not None:
            return old
        rows = start.config.rows
        for row in scoring(rows):
            return CrossConfig(rows[row].settings['pooler'])
        return CrossConfig()

    @classmethod
    def make_head(
        cls, entry: CrossConfig, encoder: Any, specials: Specials, dtype: Any
    ) -> PairScore:
        """Implements `Critic.make_head`."""
        del specials, dtype
        return PairScore(encoder, entry.pooler)

    @classmethod
    def begins_as(cls, config: Config) -> list[str]:
        """Implements `Critic.begins_as`."""
        return [f'objectives/{row}' for row in scoring(config.rows)[:1]]

    @classmethod
    def writes_head(cls, entry: CrossConfig) -> tuple[str, dict[str, Any]]:
        """Implements `Critic.writes_head`."""
        return 'classes', dataclasses.asdict(entry)

    @classmethod
    def check_public(
        cls,
        entry: CrossConfig,
        where: str,
        arguments: Mapping[str, Any],
        vectors: Any,
        first: bool,
    ) -> None:
        """Raises where the score of a pair is of an unsuitable state."""
        ours = 'cls' if first else 'last'
        if vectors.pooling != ours:
            raise InputError(
                'scores_of_another_state',
                f'{where} scores pairs by the pooling {vectors.pooling}; only '
                f'{ours} can be converted',
            )

    def pair_scores(self, batch: Any, states: Tensor) -> Tensor:
        """Scores states of pairs: [N, M, D] -> [N, M] float32."""
        key = batch.fused_key
        if key is not None:
            key = dropout.fold_in(key, batch.replicas.id)
        return self.layer.scores(states, key)


def scoring(rows: Mapping[str, Any]) -> list[str]:
    """Lists the rows of a workdir that give a pair of texts one number."""
    return [
        row
        for row in ('score', 'label')
        if row in rows and rows[row].settings.get('classes', 1) == 1
    ]
