"""How weights are updated, as published systems do it: TensorFlow.

AdamW, or Adagrad, by settings that `PRESETS` has by name. The first is the
paper's (Kong et al. 2019, App. B) and the default: beta 0.9 and 0.98, epsilon
1e-6, decoupled decay 0.01 that spares biases and norms, linear warm-up and
linear decay. One clip of the global norm follows the sum of the replicas'
gradients (a clip before it, as Keras has, is another one for another number
of replicas).
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
    """How a system updates its weights, whatever its learning rate.

    Attributes:
        beta_1, beta_2: of the averages of gradients and of their squares;
            beta_2 None: squares are summed, from 1 on, and gradients taken as
            they are (Adagrad).
        epsilon: beside the root of the average of squares.
        corrected: whether both averages are corrected for their start at 0.
        weight_decay: a step's share of the learning rate.
        decaying: how the paths of weights that decay end.
        decay_corrected: whether that learning rate is the corrected one.
        clip_norm: largest global norm of the gradient; 0: no clip.
        lr_decay: decay of the learning rate after the warm-up: 'linear',
            'cosine' or 'none'; with 'none' there is no warm-up by default.
        from_start: whether the decay is counted from the first update on, so
            that some of it is over when the warm-up ends.
        floor: share of the peak that is left at the end.
        lead: in the warm-up, update t, from 0 on, has t + lead steps of it.
        by_row: of Adagrad, whether a row of a table has one sum of squares,
            from 0 on, that of their means; and of a table that is looked up
            only rows that were read are touched.
        moments: of Adam, as what both averages are kept: 'float32', or
            'bfloat16', rounded by chance, which is right on average.
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
        """Whether a weight decays."""
        return path.endswith(self.decaying)


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


def chosen(
    name: str = DEFAULT,
    weight_decay: float | None = None,
    clip_norm: float | None = None,
    moments: str = 'float32',
) -> Preset:
    """Published settings, and what a run wants otherwise.

    Raises:
        UsageError: moments of Adagrad, which sums: sums want float32.
    """
    wanted = {'weight_decay': weight_decay, 'clip_norm': clip_norm}
    rules = PRESETS[name]
    if moments != 'float32' and rules.beta_2 is None:
        raise UsageError(
            f'--moments={moments} is for Adam; --optimizer={name} sums squares'
        )
    return rules._replace(
        moments=moments, **{k: v for k, v in wanted.items() if v is not None}
    )


def warmup_steps(
    chosen: int | None, steps: int, rules: Preset = PRESETS[DEFAULT]
) -> int:
    """Updates of the warm-up: a tenth of all where nothing is chosen."""
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
    """The learning rate of update `step`, float32, by the shape that `rules`
    have.

    Warm-up is linear, by peak / warmup_steps an update; the decay reaches its
    end one update after the last. By default the first update has one step of
    the warm-up, and the decay is linear, down to 0.
    """
    step = tf.cast(step, tf.float32)
    warmup = (step + float(rules.lead)) / max(1, warmup_steps)
    begin = 0 if rules.from_start else warmup_steps
    left = (steps - step) / max(1, steps - begin)
    if rules.lr_decay == 'cosine':
        left = 0.5 - 0.5 * tf.cos(math.pi * tf.clip_by_value(left, 0.0, 1.0))
    elif rules.lr_decay == 'none':
        left = tf.ones_like(step)
    if rules.floor:
        left = rules.floor + (1.0 - rules.floor) * left
    factor = tf.where(step < warmup_steps, warmup, left)
    return peak * tf.clip_by_value(factor, 0.0, 1.0)


def layer_shares(
    paths: Iterable[str], depth: int, decay: float
) -> dict[str, float]:
    """What layer-wise decay leaves of the learning rate.

    1 for heads, then `decay` times less from each layer to the one below, the
    embeddings below the first. It scales the rate: XLNet's code scales
    gradients, which Adam divides out again.
    """
    shares = {}
    for path in paths:
        layer = re.match(r'encoder/layer_(\d+)/', path)
        if layer:
            shares[path] = decay ** (depth - 1 - int(layer[1]))
        elif path.startswith('encoder/last_'):
            continue  # the norm above the last layer
        elif path.startswith('encoder/'):
            shares[path] = decay**depth
    return shares


class AdamW:
    """Decoupled weight decay (Loshchilov and Hutter 2019) beside Adam.

    Or beside Adagrad, where the rules say so.

    Variables are updated through the handle of the replica that runs, so
    there is no second synchronisation: every replica applies the same
    gradient to its own copy.
    """

    def __init__(
        self,
        variables: Mapping[str, keras.Variable],
        rules: Preset = PRESETS[DEFAULT],
        shares: Mapping[str, float] = types.MappingProxyType({}),
        no_decay: Collection[str] = (),
    ):
        """Makes the moments; call it under the strategy's scope.

        Args:
            shares: by path, of the learning rate that a variable has;
                1 where nothing is said.
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
        """As `apply` takes it: dense, or rows alone where these are updated."""
        if self.rules.by_row and isinstance(gradient, tf.IndexedSlices):
            return gradient
        return tf.convert_to_tensor(gradient)

    def forget(self) -> None:
        """Sets the moments as they were made."""
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
        """Updates every variable of the replica that runs, or none.

        Args:
            gradients: in the order of the variables, summed over replicas,
                each as `gradient` gives it.
            allowed: bool; False leaves everything as it is.

        Returns:
            bool: whether the update was made, that is, it was allowed and
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
        powers = (0.0, 0.0)  # of a count without end: nothing to correct
        if rules.corrected and rules.beta_2 is not None:
            count = tf.cast(step + 1, tf.float32)
            powers = (rules.beta_1**count, rules.beta_2**count)
        decay = rules.weight_decay
        if rules.decay_corrected:
            decay *= tf.sqrt(1.0 - powers[1]) / (1.0 - powers[0])

        def update() -> tf.Tensor:
            same = {}  # of all variables, in one place of the graph
            if rules.beta_2 is not None:
                same = {
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
                    self._update_rows(path, gradient, scale, rate, shrink)
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
                if rules.beta_2 is None:
                    tf.raw_ops.ResourceApplyAdagrad(
                        var=handle, accum=v, lr=rate, grad=gradient
                    )
                    continue
                if rules.moments != 'float32':
                    self._update_narrow(path, gradient, rate, powers, step)
                    continue
                tf.raw_ops.ResourceApplyAdam(
                    var=handle,
                    m=self.slots[f'm/{path}'].handle,
                    v=v,
                    beta1_power=powers[0],
                    beta2_power=powers[1],
                    lr=rate,
                    grad=gradient,
                    **same,
                )
            return tf.constant(True)

        return tf.cond(sound, update, lambda: tf.constant(False))

    def _update_narrow(
        self,
        path: str,
        gradient: tf.Tensor,
        rate: tf.Tensor,
        powers: tuple[Any, Any],
        step: tf.Tensor,
    ) -> None:
        """Adam whose averages are bfloat16 between updates.

        An average moves by less than half of what bfloat16 tells apart, and
        would stand still if it were rounded to the nearest. Chance depends on
        the update and the weight alone, so it is the same on all replicas.
        """
        raw, rules = tf.raw_ops, self.rules
        handles = [self.slots[f'{slot}/{path}'].handle for slot in 'mv']
        m, v = (
            tf.cast(raw.ReadVariableOp(resource=x, dtype=tf.bfloat16), 'float')
            for x in handles
        )
        m += (1.0 - rules.beta_1) * (gradient - m)
        v += (1.0 - rules.beta_2) * (tf.square(gradient) - v)
        rate = rate * tf.sqrt(1.0 - powers[1]) / (1.0 - powers[0])
        raw.AssignSubVariableOp(
            resource=self.variables[path].handle,
            value=rate * m / (tf.sqrt(v) + rules.epsilon),
        )
        seed = tf.stack([tf.cast(step, tf.int64), zlib.crc32(path.encode())])
        bits = tf.random.stateless_uniform(
            tf.shape(m), seed, None, None, tf.uint32
        )
        halves = tf.bitwise.bitwise_and(bits, 0xFFFF), tf.bitwise.right_shift(
            bits, tf.constant(16, tf.uint32)
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
        """Adagrad with one sum of squares a row; `shrink`: what decays of
        those.
        """
        raw = tf.raw_ops
        of = {'resource': self.variables[path].handle}
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
            change -= shrink * read(of)
        total = tf.squeeze(total, axes)
        if sparse:
            rows = {'indices': gradient.indices}
            raw.ResourceScatterUpdate(**squares, **rows, updates=total)
            raw.ResourceScatterAdd(**of, **rows, updates=change)
        else:
            raw.AssignVariableOp(**squares, value=total)
            raw.AssignAddVariableOp(**of, value=change)


def narrowed(x: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
    """Float32 as bfloat16: the one below or above, as near as it is likely.

    Args:
        x: [...] float32, finite.
        chance: [...] uint32, evenly drawn from 0 to 65535.
    """
    bits = tf.bitcast(x, tf.uint32) + chance
    bits = tf.bitwise.bitwise_and(bits, tf.constant(0xFFFF0000, tf.uint32))
    return tf.cast(tf.bitcast(bits, tf.float32), tf.bfloat16)  # exactly


def _distinct(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same gradient with every row once: norms and squares are right."""
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(
        gradient.values, places, tf.size(rows)
    )
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
