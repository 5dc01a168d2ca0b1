"""Public models by `model_type`: a file for each family.

An entry says how config.json reads and what the weights are called, in both
directions.
"""

from infoword_tf.weights.kinds import (
    bert,
    deberta,
    gpt,
    modernbert,
    rotary,
    xlnet,
)
from infoword_tf.weights.kinds.architecture import Architecture

# An encoder is written as the first that `writes` it.
ARCHITECTURES: dict[str, Architecture] = {
    **gpt.ARCHITECTURES,
    **bert.ARCHITECTURES,
    **xlnet.ARCHITECTURES,
    **rotary.ARCHITECTURES,
    **modernbert.ARCHITECTURES,
    **deberta.ARCHITECTURES,
}
