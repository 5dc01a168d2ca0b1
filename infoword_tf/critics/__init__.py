"""The critics f(a, b): how two texts are compared, one file each.

    critic    a text is                    f(a, b), times the temperature
    cosine    a vector                     the cosine
    late      vectors of its tokens        sum over tokens of a of the largest
                                           cosine with a token of b (ColBERT)
    lexical   weights of the vocabulary    the dot product (SPLADE)
    cross     encoded with the other one   a score (monoBERT)

a is the query, b the passage.
"""

from infoword_tf.critics.cosine import SentenceCosine
from infoword_tf.critics.critic import Critic, HeadConfig, Start
from infoword_tf.critics.cross import CrossCritic
from infoword_tf.critics.form import Compared
from infoword_tf.critics.late import LateCritic
from infoword_tf.critics.learned import LearnedCosine
from infoword_tf.critics.lexical import LexicalCritic

CRITICS: dict[str, type[Critic]] = {
    'cosine': SentenceCosine,
    'late': LateCritic,
    'lexical': LexicalCritic,
    'cross': CrossCritic,
}
# Those of `ict`: texts are encoded each by itself, and vectors pooled by
# learned weights.
OF_DOCUMENTS: dict[str, type[Critic]] = {
    name: critic for name, critic in CRITICS.items() if not critic.of_pairs
} | {'cosine': LearnedCosine}

__all__ = [
    'CRITICS', 'OF_DOCUMENTS', 'Compared', 'Critic', 'HeadConfig', 'Start',
]  # fmt: skip
