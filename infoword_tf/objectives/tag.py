"""The row `tag`: the label of each word of a text.

    row  a       b                    f(a, b)                  candidates
    tag  a text  the label of a word  psi_b . g_omega(a)_word  all labels

g_omega(a)_word is the state of the word's first token (Devlin et al. 2019,
§5.3), or ELMo's mix of all layers. Cross-entropy over the labels is Eq. 1, so
with labels as frequent as p

    I(text and place, label) >= H(label) - cross-entropy,

and a critic that knows p alone has exactly 0. With `bilstm` a bidirectional
LSTM reads these states, with `embeddings` beside those of the input layer:
[x; ELMo] under a network of the task (Peters et al. 2018, §3.3). With `crf` the
labels of a text are scored together (layers/crf.py): the loss is minus the log
of their joint probability, and MI, accuracy and predictions are of the
posterior of each label, which is a distribution over the same candidates.

Shapes: C labels.
"""

from collections.abc import Sequence

import numpy as np

from infoword_tf.layers.bilstm import BiLstm
from infoword_tf.layers.crf import Crf, chains_of
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.label import VIEW, Scorer, flat
from infoword_tf.objectives.objective import (
    Batch,
    Row,
    Settings,
    vector_of_init,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads
from infoword_tf.views.examples import UNKNOWN

FIRST, ALL = TOKENS = ('first', 'all')


class Tags(Scorer):
    """`tag`: the label of each word, by Eq. 1 over all labels.

    Learns: a head over the states of words, and the encoder.
    Take it: for named entities, parts of speech and other labels of words.
    Needs: texts whose words are labelled, and usually --init.
    Example: python -m tasks.tag --init=MODEL --train=train.conll
        --dev=dev.conll --workdir=W
    """

    classes: int = setting(
        2,
        'How many labels there are.',
        at_least=1,
        decided_by='the labels of the words',
    )
    tokens: str = setting(
        FIRST,
        'Which tokens are labelled: the first of each word, or all, as '
        "transformers' simple aggregation reads them.",
        choices=TOKENS,
    )
    context: int = setting(
        32,
        'Least tokens on either side of a word in a text that is read in '
        'windows, if the text has them; a quarter of a window at most.',
        at_least=0,
    )
    embeddings: bool = setting(
        False,
        "Read a token's input embedding, too, beside its state ([x; ELMo]).",
    )
    bilstm: bool = setting(
        False,
        'Read states with a bidirectional LSTM, each direction as wide as the '
        'encoder, before they are scored.',
    )
    crf: bool = setting(
        False,
        'Score the labels of a text together, by those of neighbours '
        '(linear-chain CRF).',
    )

    @property
    def columns(self) -> int:
        """C."""
        return self.classes

    @property
    def layers(self) -> bool:
        """Need for the states of all layers."""
        return self.mix or self.embeddings

    @property
    def input_width(self) -> int:
        """D, 2 D of states and embeddings, or 2 D of a BiLSTM."""
        wide = self.bilstm or self.embeddings
        return self.encoder.width * (1 + wide)

    def build(self) -> None:
        """Makes the layers."""
        width = self.encoder.width
        if self.bilstm:
            self.reader = BiLstm(width, self.dtype_policy)
            self.reader.build(width * (1 + self.embeddings))
        if self.crf:
            self.chain = Crf(self.classes)
            self.chain.build()
        super().build()

    def scores_of(
        self,
        states: Tensor,
        layers: Sequence[Tensor],
        block_ids: Tensor,
        *,
        fused_key: Tensor | None = None,
        key: Tensor | None = None,
    ) -> Tensor:
        """Scores the labels of every token: [B, T, C] float32.

        Args:
            states: [B, T, D].
            layers: L + 1 times [B, T, D], or none where they are not read.
            block_ids: [B, T] int32, of texts; a BiLSTM stays inside.
            fused_key, key: keys of fused operations and of dropout; None:
                inference.
        """
        if self.mix:
            states = self.mixer(layers)
        if self.embeddings:
            pair = [ops.cast(x, 'float32') for x in (layers[0], states)]
            states = ops.concatenate(pair, axis=-1)
        if self.bilstm:
            both = self.reader.directions(states, block_ids, fused_key)
            states = ops.concatenate(both, axis=-1)
        return self.class_scores(states, key)

    def token_scores(self, batch: Batch) -> Tensor:
        """Scores the labels of every token of the view: [B, T, C] float32."""
        return self.scores_of(
            batch.states(VIEW),
            batch.layers(VIEW) if self.layers else [],
            batch.views[VIEW].block_ids,
            fused_key=batch.fused_key,
            key=self.dropout_key(batch),
        )

    def words(self, batch: Batch) -> Tensor:
        """Marks the tokens of words, labelled or not: [B, T] bool."""
        return ops.not_equal(batch.views[VIEW].targets[self.row], UNKNOWN)

    def word_scores(self, batch: Batch) -> Tensor:
        """Scores labels as `token_scores`; with a CRF by the log posterior.

        No loss of a text is computed then, so there is no gradient.
        """
        scores = self.token_scores(batch)
        if not self.crf:
            return scores
        chains = chains_of(self.words(batch), batch.views[VIEW].block_ids)
        return self.chain.posteriors(scores, None, chains, batch.fused_key)[0]

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes cross-entropy of labels, or of all labels of a text."""
        scores = self.token_scores(batch)
        view = batch.views[VIEW]
        targets, weights = view.targets[self.row], view.weights[self.row]
        loss = labels = None
        if self.crf:
            chains = chains_of(weights > 0, view.block_ids)
            if not batch.training:
                labels = self.chain.best(scores, chains)
            scores, loss = self.chain.posteriors(
                scores, targets, chains, batch.fused_key
            )
        elif not batch.training:
            labels = ops.cast(ops.argmax(scores, axis=2), 'int32')
        answers = flat(scores)
        targets = ops.reshape(targets, (-1,))
        positive, rank = infonce.rank_classes(answers, targets)
        statistics = batch.statistics.by_row[self.row]
        outcome = infonce.infonce(
            infonce.Candidates(
                positive,
                ops.logsumexp(answers, axis=1),
                float(np.log(self.classes)),
                rank,
            ),
            ops.reshape(weights, (-1,)),
            statistics.marginal(
                self.row,
                ops.maximum(targets, 0),
                np.full(self.classes, 1 / self.classes),
            ),
        )
        if loss is not None:
            outcome = outcome._replace(loss=loss)
        if labels is not None:
            outcome = outcome._replace(predictions={'labels': labels})
        return outcome


def _tokens(settings: Settings) -> Reads:
    return Reads('text', layers=settings['mix'] or settings['embeddings'])


ROW = Row(
    objective=Tags,
    a='text',
    b='the label of a word',
    relation='the class that people gave the word',
    candidates='all labels',
    views={VIEW: _tokens},
    needs=('words',),
    vector=vector_of_init,
    answers=('tags',),
    public_head='tags',
    taught_by='soft_tag',
    of_tokens=True,
)
