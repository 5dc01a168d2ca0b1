"""The row `plm`: a word from the words before it in a random order.

    row   a              b                       candidates
    plm   permuted text  next word of the order  the whole vocabulary

g_omega is the state of the query stream at the word's place, which knows the
place and not the word; g_psi is the input embedding, with a bias of each word
and without a transform (Yang et al. 2019, Eq. 3 and 4). One in k words is
predicted, the last ones of the order; see `views.permuted`.
"""


from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.mlm import VocabularyTokens
from infoword_tf.objectives.objective import Batch, Row, Scoring, Vector
from infoword_tf.views import Reads

VIEW = 'permuted'


class PermutedTokens(VocabularyTokens):
    """`plm`: the next word of a random order, as in XLNet.

    Learns: words from both sides, without [MASK] in the text.
    Take it: to pretrain an encoder with memory, for tasks with long texts.
    Needs: long texts; --seq_len with room for two halves.
    Example: python -m infoword_tf.train --objectives=plm --workdir=W
    """

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes cross-entropy over V; a query never shows the word."""
        view = batch.views[VIEW]
        measured = ops.ones_like(view.weights[self.row])
        return self.among_all(
            batch, view, batch.states(VIEW), measured, bias=self.token_bias
        )


ROW = Row(
    objective=PermutedTokens,
    a='permuted text',
    b='next token of the order',
    relation='a token and what comes before it in a sampled order (XLNet)',
    candidates='vocabulary',
    views={VIEW: Reads('queries')},
    needs=('queries',),
    vector=Vector(layout='xlnet'),
    public_head='permuted_words',
    products=Scoring.all_pairs,
)
