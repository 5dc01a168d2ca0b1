"""Optimizers of published systems: AdamW and Adagrad, in TensorFlow.

`PRESETS` has their settings by name. The first is the paper's (Kong et al.
2019, App. B) and the default: beta 0.9 and 0.98, epsilon 1e-6, decoupled decay
0.01 except of biases and norms, linear warm-up and linear decay. One norm over
the gradients of all trained weights is clipped, once, after these are summed
over replicas and microbatches and before the moments (clipped before the sum,
as in Keras, it would depend on the number of replicas).
"""

import math
import re
import types
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from infoword_tf.errors import UsageError

DECAYING = ('kernel', 'embedding', 'embeddings')  # how their paths end
# u, v and s of relative attention: XLNet's r_w_bias, r_r_bias and r_s_bias.
RELATIVE_BIASES = ('content_bias', 'position_bias', 'segment_bias')


class Preset(NamedTuple):
    """Settings of an optimizer, other than the learning rate.

    Attributes:
        beta_1, beta_2: decay of the averages of gradients and of their squares;
            beta_2 None: Adagrad, which sums squares, from 1 on, and does not
            average gradients.
        epsilon: added to the root of the average of squares.
        corrected: whether both averages are corrected for their start at 0.
        weight_decay: decay of a step, as a share of the learning rate.
        decaying: endings of the paths of weights that decay.
        decay_corrected: whether decay uses the corrected learning rate.
        clip_norm: largest common norm of all gradients, which are scaled
            down to it; 0: no clip.
        lr_decay: decay of the learning rate after the warm-up: 'linear',
            'cosine' or 'none', which is level.
        from_start: whether the decay is counted from the first update on, so
            that a share of it is over when the warm-up ends.
        floor: share of the peak that remains at the end.
        lead: update t, from 0 on, has t + lead steps of the warm-up.
        by_row: row-wise Adagrad: each vector of a table has one sum, from 0
            on, of its mean squares, and an update touches only the vectors
            that were looked up.
        moments: dtype of Adam's averages: 'float32', or 'bfloat16' with
            stochastic rounding.
    """

    beta_1: float = 0.9
    beta_2: float | None = 0.999
    epsilon: float = 1e-8
    corrected: bool = True
    weight_decay: float = 0.01
    decaying: tuple[str, ...] = DECAYING
    decay_corrected: bool = False
    clip_norm: float = 1.0
    lr_decay: str = 'linear'
    from_start: bool = False
    floor: float = 0.0
    lead: int = 0
    by_row: bool = False
    moments: str = 'float32'

    def decays(self, path: str) -> bool:
        """Tells whether the weight of a path decays."""
        return path.endswith(self.decaying)


class Course(NamedTuple):
    """Updates of a run: by which rules, how many, and at which rate.

    Attributes:
        rules: settings of the optimizer.
        steps: number of updates.
        warmup_steps: updates until the peak.
        peak: highest learning rate.
    """

    rules: Preset
    steps: int
    warmup_steps: int
    peak: float


DEFAULT = 'infoword'
PRESETS: dict[str, Preset] = {
    # Kong et al. 2019, App. B; there is no official code.
    'infoword': Preset(beta_2=0.98, epsilon=1e-6, lead=1),
    # Loshchilov and Hutter 2019, with the values that PyTorch has.
    'adamw': Preset(),
    # google-research/bert, optimization.py.
    'bert': Preset(epsilon=1e-6, corrected=False, from_start=True),
    # zihangdai/xlnet, model_utils.py.
    'xlnet': Preset(
        corrected=False, decaying=DECAYING + RELATIVE_BIASES, floor=0.001
    ),
    # openai/finetune-transformer-lm, opt.py; the decay of pre-training
    # (Radford et al. 2018, §4.1).
    'gpt': Preset(decay_corrected=True, lr_decay='cosine'),
    # kimiyoung/transformer-xl, wt103_base.
    'transformer_xl': Preset(
        weight_decay=0.0, clip_norm=0.25, lr_decay='cosine'
    ),
    # allenai/bilm-tf, training.py, but for the factor of 20 on its loss.
    'elmo': Preset(
        beta_2=None, weight_decay=0.0, clip_norm=10.0, lr_decay='none'
    ),
    # tmikolov/word2vec, word2vec.c: its decay from the first word on. It takes
    # pairs one by one; a sum over thousands of one word's wants that word's
    # own rate.
    'word2vec': Preset(
        beta_2=None,
        epsilon=1e-20,
        weight_decay=0.0,
        clip_norm=0.0,
        floor=1e-4,
        by_row=True,
    ),
}


def preset(
    name: str = DEFAULT,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    moments: str = 'float32',
    lr_decay: str | None = None,
) -> Preset:
    """Returns published settings with the changes of a run.

    Args:
        name: name in PRESETS.
        weight_decay, clip_norm, moments, lr_decay: attributes of `Preset`;
            None: that of the published settings.

    Raises:
        UsageError: `moments` of Adagrad, whose sums need float32.
    """
    rules = PRESETS[name]
    if moments != 'float32' and rules.beta_2 is None:
        raise UsageError(
            'moments_of_sums',
            f'--moments={moments} is for Adam; --optimizer={name} sums squares',
        )
    if weight_decay is None:
        weight_decay = rules.weight_decay
    if clip_norm is None:
        clip_norm = rules.clip_norm
    return rules._replace(
        moments=moments, weight_decay=weight_decay, clip_norm=clip_norm,
        lr_decay=lr_decay or rules.lr_decay,
    )  # fmt: skip


def warmup_steps(
    chosen: int | None, steps: int, rules: Preset = PRESETS[DEFAULT]
) -> int:
    """Returns the updates of the warm-up; by default a tenth of all."""
    if chosen is not None:
        return chosen
    return 0 if rules.beta_2 is None else max(1, steps // 10)


def schedule(
    step: tf.Tensor,
    peak: float,
    warmup_steps: int,
    steps: int,
    rules: Preset = PRESETS[DEFAULT],
) -> tf.Tensor:
    """Returns the learning rate of update `step`, float32 [].

    Warm-up is linear, by peak / warmup_steps an update; the decay ends one
    update after the last. By default the first update has one step of the
    warm-up, and the decay is linear, down to 0.
    """
    step = tf.cast(step, tf.float32)
    warmup = (step + float(rules.lead)) / max(1, warmup_steps)
    begin = 0 if rules.from_start else warmup_steps
    decay = (steps - step) / max(1, steps - begin)
    if rules.lr_decay == 'cosine':
        decay = 0.5 - 0.5 * tf.cos(math.pi * tf.clip_by_value(decay, 0.0, 1.0))
    elif rules.lr_decay == 'none':
        decay = tf.ones_like(step)
    if rules.floor:
        decay = rules.floor + (1.0 - rules.floor) * decay
    factor = tf.where(step < warmup_steps, warmup, decay)
    return peak * tf.clip_by_value(factor, 0.0, 1.0)


def layer_shares(
    paths: Iterable[str], depth: int, decay: float
) -> dict[str, float]:
    """Returns by path the factor of the learning rate, decayed by layer.

    1 for heads, then `decay` times less from each layer to the one below, the
    embeddings below the first. The rate is scaled: XLNet's code scales
    gradients, which Adam divides out again.
    """
    shares = {}
    for path in paths:
        layer = re.match(r'(?:adapters/)?encoder/layer_(\d+)/', path)
        if layer:
            shares[path] = decay ** (depth - 1 - int(layer[1]))
        elif path.startswith('encoder/last_'):
            continue  # the norm above the last layer
        elif path.startswith('encoder/'):
            shares[path] = decay**depth
    return shares


class AdamW:
    """Adam or Adagrad with decoupled weight decay.

    The decay is that of Loshchilov and Hutter 2019. Variables are updated
    through the handle of the running replica, without a second
    synchronisation: every replica applies the same gradient to its own copy.
    Moments are `slots`, by 'm/PATH' and 'v/PATH'.
    """

    def __init__(
        self,
        variables: Mapping[str, keras.Variable],
        rules: Preset = PRESETS[DEFAULT],
        shares: Mapping[str, float] = types.MappingProxyType({}),
        no_decay: Collection[str] = (),
    ):
        """Creates the moments, under the strategy's scope.

        Args:
            shares: factors of the learning rate, by path; 1 where missing.
            no_decay: paths of weights that do not decay, whatever the rules.
        """
        self.rules, self.shares, self.no_decay = rules, shares, no_decay
        self.variables = {
            path: variable.value for path, variable in variables.items()
        }
        self.slots: dict[str, tf.Variable] = {}
        self.starts = {'m': 0.0, 'v': 0.0}
        if rules.beta_2 is None:
            self.starts = {'v': 0.0 if rules.by_row else 1.0}
        for path, variable in self.variables.items():
            for slot, start in self.starts.items():
                first = tf.fill(self._slot_shape(variable), start)
                self.slots[f'{slot}/{path}'] = tf.Variable(
                    tf.cast(first, rules.moments), trainable=False
                )

    def _slot_shape(self, variable: tf.Variable) -> tf.TensorShape:
        return variable.shape[:1] if self.rules.by_row else variable.shape

    def gradient(self, gradient: Any) -> Any:
        """Converts a gradient for `apply`: dense, unless row-wise."""
        if self.rules.by_row and isinstance(gradient, tf.IndexedSlices):
            return gradient
        return tf.convert_to_tensor(gradient)

    def reset(self) -> None:
        """Resets the moments to the initial values."""
        for path, slot in self.slots.items():
            start = self.starts[path.split('/')[0]]
            slot.assign(tf.cast(tf.fill(slot.shape, start), slot.dtype))

    def apply(
        self,
        gradients: Sequence[Any],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        allowed: tf.Tensor,
    ) -> tf.Tensor:
        """Clips the gradients, and updates all variables of a replica.

        Args:
            gradients: one gradient a variable, in their order, summed over
                replicas and converted by `gradient`.
            allowed: bool []; False leaves everything as it is.

        Returns:
            bool []: whether the update was made, that is, it was allowed and
            the gradient's norm is finite.
        """
        gradients = [
            _distinct(g) if isinstance(g, tf.IndexedSlices) else g
            for g in gradients
        ]
        norm = tf.linalg.global_norm(gradients)
        sound = tf.logical_and(allowed, tf.math.is_finite(norm))
        scale = tf.constant(1.0)
        rules = self.rules
        if rules.clip_norm:
            scale = tf.minimum(1.0, rules.clip_norm / tf.maximum(norm, 1e-12))
        powers = (0.0, 0.0)  # in the limit of many updates: no correction
        if rules.corrected and rules.beta_2 is not None:
            count = tf.cast(step + 1, tf.float32)
            powers = (rules.beta_1**count, rules.beta_2**count)
        decay = rules.weight_decay
        if rules.decay_corrected:
            decay *= tf.sqrt(1.0 - powers[1]) / (1.0 - powers[0])

        def update() -> tf.Tensor:
            self._update_all(
                gradients, scale, learning_rate, powers, decay=decay, step=step
            )
            return tf.constant(True)

        return tf.cond(sound, update, lambda: tf.constant(False))

    def _update_all(
        self,
        gradients: Sequence[tf.Tensor],
        scale: tf.Tensor,
        learning_rate: tf.Tensor,
        powers: tuple[Any, Any],
        decay: Any,
        step: tf.Tensor,
    ) -> None:
        """Updates all variables of a replica.

        Args:
            gradients: one gradient a variable, in their order.
            scale: float32 [], factor of the gradients.
            learning_rate: float32 [].
            powers: powers of the betas, for the correction of the moments.
            decay: share of a weight that decays, in units of the rate.
            step: int64 [], updates before.
        """
        rules = self.rules
        constants = {}  # shared by all variables, which keeps graphs small
        if rules.beta_2 is not None:
            constants = {
                'beta1': tf.constant(rules.beta_1),
                'beta2': tf.constant(rules.beta_2),
                'epsilon': tf.constant(rules.epsilon),
            }
        for gradient, (path, variable) in zip(
            gradients, self.variables.items(), strict=True
        ):
            handle = variable.handle
            rate = learning_rate
            if path in self.shares:
                rate = learning_rate * self.shares[path]
            decays = rules.decays(path) and path not in self.no_decay
            if rules.by_row:
                shrink = rate * decay if decays else 0.0
                self._update_rows(
                    path,
                    gradient,
                    scale=scale,
                    rate=rate,
                    shrink=shrink,
                )
                continue
            gradient = tf.convert_to_tensor(gradient) * scale
            if rules.weight_decay and decays:
                value = tf.raw_ops.ReadVariableOp(
                    resource=handle, dtype=tf.float32
                )
                tf.raw_ops.AssignVariableOp(
                    resource=handle, value=value * (1.0 - rate * decay)
                )
            v = self.slots[f'v/{path}'].handle
            beta_1, beta_2 = rules.beta_1, rules.beta_2
            if beta_2 is None:
                tf.raw_ops.ResourceApplyAdagrad(
                    var=handle, accum=v, lr=rate, grad=gradient
                )
                continue
            if rules.moments != 'float32':
                self._update_narrow(
                    path, gradient, rate, (beta_1, beta_2),
                    powers=powers, step=step,
                )  # fmt: skip
                continue
            tf.raw_ops.ResourceApplyAdam(
                var=handle,
                m=self.slots[f'm/{path}'].handle,
                v=v,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=rate,
                grad=gradient,
                **constants,
            )

    def _update_narrow(
        self,
        path: str,
        gradient: tf.Tensor,
        rate: tf.Tensor,
        betas: tuple[float, float],
        powers: tuple[Any, Any],
        step: tf.Tensor,
    ) -> None:
        """Updates by Adam whose averages are bfloat16 between updates.

        An average moves by less than half of bfloat16's resolution, so
        rounded to the nearest it would never change. The random bits depend
        on the update and the weight alone: all replicas have the same.
        """
        raw, rules = tf.raw_ops, self.rules
        handles = [self.slots[f'{slot}/{path}'].handle for slot in 'mv']
        m, v = (
            tf.cast(raw.ReadVariableOp(resource=x, dtype=tf.bfloat16), 'float')
            for x in handles
        )
        m += (1.0 - betas[0]) * (gradient - m)
        v += (1.0 - betas[1]) * (tf.square(gradient) - v)
        rate = rate * tf.sqrt(1.0 - powers[1]) / (1.0 - powers[0])
        raw.AssignSubVariableOp(
            resource=self.variables[path].handle,
            value=rate * m / (tf.sqrt(v) + rules.epsilon),
        )
        seed = tf.stack([tf.cast(step, tf.int64), zlib.crc32(path.encode())])
        bits = tf.random.stateless_uniform(
            tf.shape(m), seed, None, None, tf.uint32
        )
        halves = (
            tf.bitwise.bitwise_and(bits, 0xFFFF),
            tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32)),
        )
        for handle, value, chance in zip(handles, (m, v), halves, strict=True):
            raw.AssignVariableOp(resource=handle, value=narrowed(value, chance))

    def _update_rows(
        self,
        path: str,
        gradient: Any,
        scale: tf.Tensor,
        rate: tf.Tensor,
        shrink: Any,
    ) -> None:
        """Updates by row-wise Adagrad; `shrink`: share that decays."""
        raw = tf.raw_ops
        table = {'resource': self.variables[path].handle}
        squares = {'resource': self.slots[f'v/{path}'].handle}
        sparse = isinstance(gradient, tf.IndexedSlices)
        values = (gradient.values if sparse else gradient) * scale
        axes = list(range(1, values.shape.rank))
        new = tf.reduce_mean(tf.square(values), axes, keepdims=True)

        def read(handle: dict[str, Any]) -> tf.Tensor:
            if sparse:
                return raw.ResourceGather(
                    **handle, indices=gradient.indices, dtype=tf.float32
                )
            return raw.ReadVariableOp(**handle, dtype=tf.float32)

        total = tf.reshape(read(squares), tf.shape(new)) + new
        change = -rate * values * tf.math.rsqrt(total + self.rules.epsilon)
        if self.rules.weight_decay:
            change -= shrink * read(table)
        total = tf.squeeze(total, axes)
        if sparse:
            where = {'indices': gradient.indices}
            raw.ResourceScatterUpdate(**squares, **where, updates=total)
            raw.ResourceScatterAdd(**table, **where, updates=change)
        else:
            raw.AssignVariableOp(**squares, value=total)
            raw.AssignAddVariableOp(**table, value=change)


def narrowed(x: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
    """Rounds float32 to bfloat16 [...], up or down by chance.

    Right on average, with `chance` [...] uint32 evenly drawn from 0 to 65535.
    """
    bits = tf.bitcast(x, tf.uint32) + chance
    bits = tf.bitwise.bitwise_and(bits, tf.constant(0xFFFF0000, tf.uint32))
    return tf.cast(tf.bitcast(bits, tf.float32), tf.bfloat16)  # exactly


def _distinct(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Sums values of equal indices, for exact norms and squares."""
    indices, segments = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(
        gradient.values, segments, tf.size(indices)
    )
    return tf.IndexedSlices(values, indices, gradient.dense_shape)
