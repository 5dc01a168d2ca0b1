"""The row `label`: the class of a text, or of two, among all classes.

    row    a     b          candidates
    label  text  its label  all labels

f(a, b) = psi_b . pooler(g_omega(a)) over the state that sums a text up: BERT's
head for classification (Devlin et al. 2019, §4.1), and those of its relatives.
Public weights bring it along; its score of one class alone is a logit.

Glossary of shapes: B texts, D width, C classes.
"""

from typing import Any

from keras import ops

from infoword_tf.layers.block import vector
from infoword_tf.layers.dense import ACTIVATIONS
from infoword_tf.objectives.objective import Objective
from infoword_tf.views import Specials

Tensor = Any


class Labels(Objective):
    """`label`: a dense layer with an activation, and one score a class."""

    def __init__(
        self,
        row: str,
        encoder: Any,
        specials: Specials,
        classes: int = 2,
        pooler: str = 'tanh',
        dtype: Any = None,
    ):
        """As `Objective`.

        Args:
            row, encoder, specials, dtype: as there.
            classes: C.
            pooler: activation of the first layer, a name in
                layers.dense.ACTIVATIONS (BERT: tanh, DistilBERT: relu,
                ELECTRA: gelu).
        """
        super().__init__(row, encoder, specials, dtype)
        self.classes, self.pooler = classes, pooler

    def build(self) -> None:
        """Makes both layers."""
        d = self.encoder.width
        self.pooler_kernel = self.add_weight(
            shape=(d, d), name='pooler_kernel', autocast=False
        )
        self.pooler_bias = vector(self, 'pooler_bias', d)
        self.kernel = self.add_weight(
            shape=(d, self.classes), name='kernel', autocast=False
        )
        self.bias = vector(self, 'bias', self.classes)
        self.built = True

    def class_scores(self, states: Tensor) -> Tensor:
        """States that sum up texts, [B, D] -> [B, C] float32."""
        x = ops.cast(states, 'float32')
        x = ops.matmul(x, self.pooler_kernel) + self.pooler_bias
        x = ACTIVATIONS[self.pooler](x)
        return ops.matmul(x, self.kernel) + self.bias
