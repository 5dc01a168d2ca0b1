"""AdamW as the paper runs it (Kong et al. 2019, App. B): TensorFlow.

beta 0.9 and 0.98, epsilon 1e-6, decoupled decay 0.01 that spares biases and
norms, linear warm-up and linear decay, one clip of the global norm after the
replicas' gradients are summed (a clip before it, as Keras has, is another one
for another number of replicas).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-6
DECAYING = ('kernel', 'embedding', 'embeddings')  # how their paths end


def warmup_steps(chosen: int | None, steps: int) -> int:
    """Updates of the climb: a tenth of all where nothing is chosen."""
    return max(1, steps // 10) if chosen is None else chosen


def schedule(
    step: tf.Tensor, peak: float, warmup_steps: int, steps: int
) -> tf.Tensor:
    """The learning rate of an update, float32.

    It climbs by peak / warmup_steps an update, the first one included, and
    falls linearly to reach 0 one update after the last.

    Args:
        step: updates made so far.
        peak: highest learning rate.
        warmup_steps: updates of the climb.
        steps: updates in all.
    """
    step = tf.cast(step, tf.float32)
    climb = (step + 1.0) / max(1, warmup_steps)
    fall = (steps - step) / max(1, steps - warmup_steps)
    return peak * tf.clip_by_value(tf.minimum(climb, fall), 0.0, 1.0)


class AdamW:
    """Decoupled weight decay (Loshchilov and Hutter 2019) beside Adam.

    Variables are updated through the handle of the replica that runs, so
    there is no second synchronisation: every replica applies the same
    gradient to its own copy.
    """

    def __init__(
        self,
        variables: Mapping[str, keras.Variable],
        weight_decay: float = 0.01,
        clip_norm: float = 1.0,
    ):
        """Makes the moments; call it under the strategy's scope.

        Args:
            variables: trainable ones, by path.
            weight_decay: a step's share of the learning rate.
            clip_norm: largest global norm of the gradient; 0: no clip.
        """
        self.weight_decay, self.clip_norm = weight_decay, clip_norm
        self.variables = {
            path: variable.value for path, variable in variables.items()
        }
        self.slots: dict[str, tf.Variable] = {}
        for path, variable in self.variables.items():
            for slot in ('m', 'v'):
                self.slots[f'{slot}/{path}'] = tf.Variable(
                    tf.zeros(variable.shape), trainable=False
                )

    @staticmethod
    def decays(path: str) -> bool:
        """Whether a weight decays: kernels and embeddings do."""
        return path.endswith(DECAYING)

    def apply(
        self,
        gradients: Sequence[Any],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        allowed: tf.Tensor,
    ) -> tf.Tensor:
        """Updates every variable of the replica that runs, or none.

        Args:
            gradients: in the order of the variables, summed over replicas.
            learning_rate: of this update.
            step: updates made so far.
            allowed: bool; False leaves everything as it is.

        Returns:
            bool: whether the update was made, that is, it was allowed and
            the gradient's norm is finite.
        """
        norm = tf.linalg.global_norm(gradients)
        sound = tf.logical_and(allowed, tf.math.is_finite(norm))
        scale = tf.constant(1.0)
        if self.clip_norm:
            scale = tf.minimum(1.0, self.clip_norm / tf.maximum(norm, 1e-12))
        count = tf.cast(step + 1, tf.float32)

        def update() -> tf.Tensor:
            for gradient, (path, variable) in zip(
                gradients, self.variables.items(), strict=True
            ):
                handle = variable.handle
                if self.decays(path) and self.weight_decay:
                    value = tf.raw_ops.ReadVariableOp(
                        resource=handle, dtype=tf.float32
                    )
                    shrink = 1.0 - learning_rate * self.weight_decay
                    tf.raw_ops.AssignVariableOp(
                        resource=handle, value=value * shrink
                    )
                tf.raw_ops.ResourceApplyAdam(
                    var=handle,
                    m=self.slots[f'm/{path}'].handle,
                    v=self.slots[f'v/{path}'].handle,
                    beta1_power=BETA_1**count,
                    beta2_power=BETA_2**count,
                    lr=learning_rate,
                    beta1=BETA_1,
                    beta2=BETA_2,
                    epsilon=EPSILON,
                    grad=tf.convert_to_tensor(gradient) * scale,
                )
            return tf.constant(True)

        return tf.cond(sound, update, lambda: tf.constant(False))
