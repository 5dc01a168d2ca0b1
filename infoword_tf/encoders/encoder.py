"""The contract of encoders: inputs, states, and memory between steps.

`Stack` is shared by those of Transformer blocks without memory.

Glossary of shapes: P places.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from infoword_tf import errors
from infoword_tf.layers import dropout, pointwise
from infoword_tf.layers.attention import as_numbers, table
from infoword_tf.layers.block import Sized, put, take
from infoword_tf.layers.fused import row_major
from infoword_tf.layers.pointwise import FORMS, Norm
from infoword_tf.lazy import Layer, ops, remat
from infoword_tf.settings import Configurable, setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Specials, View

# What rows ask of encoders (`Row.needs`).
ABILITIES = {
    'alone': 'a text is read without those before, of which nothing is left',
    'attention': 'tokens attend to each other',
    'at_once': 'all tokens are computed at once, which makes students quick',
    'both_sides': 'a state depends on tokens before and after its own',
    'causal': 'a state depends on no later token',
    'directions': 'both directions are read, and never meet',
    'memory': 'tokens attend to a number of tokens of the text before',
    'own_vectors': 'the state of a token is its vector, whatever is around it',
    'positions': 'tokens have the positions that a row gives copies of a text',
    'queries': 'states that know a place, and not the token there',
    'recurrence': 'a state of one size carries all text so far',
    'segments': 'two texts of a sequence are told apart',
    'words': 'labels of words are read from the states of tokens',
}
ACTIVATION = setting(  # of encoders that have a feed-forward
    'gelu_tanh',
    "Activation of the feed-forward: gelu_tanh (Google's BERT and XLNet), "
    "gelu_erf (Hugging Face's), relu (Transformer-XL's) or silu (Llama's).",
    choices=FORMS,
    flag='activation',
)


class Inputs(NamedTuple):
    """The fields of a view that an encoder reads.

    An encoder refuses fields that are not among its `input_fields`.

    Attributes:
        ids: [B, T] int32.
        positions: [B, T] int32; None: 0, 1, 2, ...
        segment_ids: [B, T] int32; None: all 0.
        block_ids: [B, T] int32: tokens attend within their block (texts
            packed into a sequence; padding is a separate block); None: one
            block.
        ranks, sees: [B, T] int32: token i sees j where sees[i] > ranks[j],
            and always itself; a query by the former alone. None: all.
        directions: [B] int32, -1 for sequences whose text is reversed, so that
            distances are those of the text; None: all 1.
        first: [B, P, D], states that the first layer reads at `first_places`
            instead of the embeddings (after positions, segments, norm and
            dropout); None: nothing is replaced.
        first_places: [B, P] int32, -1 for none.
        multipliers: [B, T, E] float32, E the `embedding_width`: factors of the
            embeddings after norm and dropout; None: all 1.
        hidden: [B, T] int32, 1 for tokens that no token attends to; None: all
            0.
    """

    ids: Tensor
    positions: Tensor | None = None
    segment_ids: Tensor | None = None
    block_ids: Tensor | None = None
    ranks: Tensor | None = None
    sees: Tensor | None = None
    directions: Tensor | None = None
    first: Tensor | None = None
    first_places: Tensor | None = None
    multipliers: Tensor | None = None
    hidden: Tensor | None = None

    @classmethod
    def of(cls, view: View) -> 'Inputs':
        """Builds the inputs from the fields of a view [B, T]."""
        return cls(*(getattr(view, name, None) for name in cls._fields))


class Encoded(NamedTuple):
    """The result of an encoder.

    Attributes:
        states: [B, P, D] at the requested places, [B, T, D] without places.
        layers: states [B, T, D] of all layers, embeddings first (L + 1, or L
            below the last); empty unless `all_layers`.
        state: memory for the next step, like `Encoder.empty_state`; None
            unless a state went in.
    """

    states: Tensor
    layers: Sequence[Tensor] = ()
    state: Any = None

    def layer(self, number: int) -> Tensor:
        """Returns one of the `layers`, [B, T, D], 0 the embeddings."""
        return self.layers[number]


class Encoder(Configurable, Layer):
    """An encoder, g_omega of the paper's table; settings are the arguments.

    Attributes:
        abilities: names in ABILITIES, each with the arguments by which the
            encoder has the ability.
        arguments: values of all settings, by name, for config.json.
        input_fields: names of `Inputs` that change the states.
        causal: whether no token reads a later one; an argument of some.
        drops_when_small: whether sizes below base drop by default on running
            text, of which they see each part a few times at most.
        biased: whether dense layers and norms have biases, also in the heads
            over this encoder.
        can_remat: whether blocks can be recomputed in the backward pass
            instead of stored (Chen et al. 2016, "Training Deep Nets with
            Sublinear Memory Cost").
        remat: whether they are.
        embedding_table: [V, D] float32, the input embeddings: g_psi of the
            lookup rows.
    """

    abilities: Mapping[str, Mapping[str, Any]] = {'alone': {}}
    input_fields: tuple[str, ...] = ('ids',)
    causal: bool = False
    drops_when_small: bool = True
    biased: bool = True
    can_remat: bool = False
    remat: bool = False
    vocab_size: int = setting(0, 'V.')
    width: int = setting(128, 'D.', at_least=1)
    max_length: int = setting(
        512,
        'Maximum length that the encoder takes; without positions only where '
        'the length is not known beforehand, as in an export.',
        at_least=1,
        flag='positions',
    )
    rate: float = setting(
        0.1, 'Dropout of states, and of attention weights.', at_least=0.0
    )

    def __init__(
        self, *, dtype: Any = None, name: str = 'encoder', **chosen: Any
    ):
        """Sets the arguments; `build()` makes the weights.

        Subclasses have no constructor: they define `make_blocks`.

        Args:
            dtype: Keras dtype policy.
            name: first part of every weight's path.
            **chosen: arguments that differ from their defaults.

        Raises:
            TypeError, ValueError: unknown arguments, or values that do not fit
                together.
        """
        super().__init__(dtype=dtype, name=name)
        self.set_values(chosen)
        self.blocks: list[Any] = []
        self.make_blocks()
        self.arguments: dict[str, Any] = {
            name: list(value) if isinstance(value, list) else value
            for name in self.settings
            for value in [getattr(self, name)]
        }
        self.complete()

    @property
    def remembers(self) -> bool:
        """True if a state goes on from step to step."""
        return 'alone' not in self.abilities

    @property
    def has_memory(self) -> bool:
        """True if that state covers a number of tokens, which a run chooses.

        Else it has a fixed size and is always used.
        """
        return 'memory' in self.abilities

    @property
    def contextual(self) -> bool:
        """True if a state depends on more than the vector of one token."""
        return 'own_vectors' not in self.abilities

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings: D, or less where a layer projects to D."""
        return self.width

    @property
    def depth(self) -> int:
        """Number of layers L."""
        return len(self.blocks)

    @property
    def query_weights(self) -> list[Any]:
        """Weights of the query stream alone, on which no state depends."""
        return []

    def make_blocks(self) -> None:
        """Completes arguments that have no fixed default, and makes the layers.

        Raises:
            ValueError: arguments that do not fit together.
        """

    def complete(self) -> None:
        """Sets attributes that follow from arguments."""

    def build(self) -> None:
        """Makes the weights under explicit paths; by default of the blocks."""
        for block in dict.fromkeys(self.blocks):
            block.build()

    def set_special_tokens(self, specials: Specials) -> None:
        """Tells an encoder that reads characters how tokens are spelled.

        Called before it computes; other encoders know tokens by ids alone.
        """

    def make_embedding_table(self) -> None:
        """Makes `embedding_table`, a weight of the encoder."""
        self.embedding_table = table(
            self, 'word_embeddings', self.vocab_size, self.embedding_width,
            dtype=self.variable_dtype,
        )  # fmt: skip

    def lookup(self, ids: Tensor) -> Tensor:
        """Looks up ids [...] -> input embeddings [..., D] float32.

        This is g_psi of rows whose b are tokens.
        """
        # The table of an export, or beside adapters, may be in bfloat16.
        return ops.cast(ops.take(self.embedding_table, ids, axis=0), 'float32')

    def put_first(self, x: Tensor, inputs: Inputs) -> Tensor:
        """Replaces embeddings by `Inputs.first` at `Inputs.first_places`.

        Args:
            x: [B, T, D] or flattened [B T, D], the embeddings.
            inputs: fields of the view.

        Returns:
            The input of the first layer, in the shape of x.
        """
        if inputs.first is None:
            return x
        tokens = ops.reshape(x, (*ops.shape(inputs.ids), self.width))
        tokens = put(tokens, inputs.first, inputs.first_places)
        return ops.reshape(tokens, ops.shape(x))

    def empty_state(self, batch: int, length: int) -> Any:
        """Returns an empty memory: arrays in a named tuple or a dict.

        Args:
            batch: B.
            length: tokens to remember, where `has_memory`.

        Raises:
            ValueError: this encoder has no memory.
        """
        raise errors.InputError(
            'remembers_nothing', f'{type(self).__name__} remembers nothing'
        )

    def check_inputs(self, inputs: Inputs) -> None:
        """Raises a ValueError for an input that the encoder does not read."""
        for name, value in inputs._asdict().items():
            if value is not None and name not in self.input_fields:
                raise errors.InputError(
                    'field_not_read',
                    f'{type(self).__name__} does not read {name}; it reads '
                    f'{", ".join(self.input_fields)}',
                )
        segments = self.arguments.get('segments')
        if inputs.segment_ids is not None and segments == 0:
            raise errors.InputError(
                'encoder_without_segments',
                'segment_ids for an encoder without segments: build it '
                'with segments=2',
            )

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
    ) -> Encoded:
        """Encodes a view.

        Encoders that remember also take `state`, the memory of the previous
        step (None: no memory), and `advance`: how many of the first tokens
        precede the next step's (XLNet's reuse; None: all). Encoders with the
        ability `queries` take `queries`: whether to return states of the query
        stream, at `places`.

        Args:
            inputs: fields of the view.
            places: [B, P] int32, at which states are returned; the last layer
                computes nothing else. None: at all tokens.
            key: [2] uint32 for dropout, or None for inference. B and T need
                not be known before the graph runs, as under Keras' `fit`.
            all_layers: whether to return the states of every layer too;
                'below': of layers below the last, which may then compute
                `places` alone.

        Returns:
            `Encoded`; states in the compute dtype.

        Raises:
            ValueError: arguments that do not fit together, or this encoder.
        """
        raise NotImplementedError


def blocks_of(
    sizes: Encoder, count: int, kind: type[Sized], *, layer: Layer, name: str,
    **more: Any,
) -> list[Any]:  # fmt: skip
    """Makes blocks with the sizes of an encoder.

    Args:
        sizes, count, kind: the encoder, number and class of the blocks.
        layer: owner of the blocks, which gives their dtype.
        name: first part of the name of each block, before its number.
        **more: arguments of this kind alone.
    """
    return [
        kind(
            width=sizes.width,
            heads=sizes.heads,
            inner_width=sizes.inner_width,
            rate=sizes.rate,
            activation=sizes.activation,
            epsilon=sizes.epsilon,
            dtype=layer.dtype_policy,
            name=f'{name}_{i}',
            **more,
        )
        for i in range(count)
    ]


class Stack(Encoder):
    """An encoder whose blocks see sequences alone, without memory or streams.

    Attributes:
        gamma, beta: [D] of the norm of the embeddings; None: no norm.
        last_gamma, last_beta: [D] of the norm after the last block; None: no
            norm.
        rms: whether these are RMS norms.
        segments: kinds of segment; 0: it knows none.
        segment_table: their embeddings; None: no segments.
    """

    abilities = {'alone': {}, 'attention': {}, 'at_once': {}, 'words': {}}
    input_fields = (
        'ids', 'positions', 'segment_ids', 'block_ids', 'first',
        'first_places', 'multipliers', 'hidden',
    )  # fmt: skip
    can_remat = True
    rms = False
    gamma = beta = last_gamma = last_beta = None
    segments = 0
    segment_table = None
    layers: int = setting(2, 'L.', at_least=1)
    heads: int = setting(2, 'H.', at_least=1)

    def make_segment_table(self) -> None:
        """Makes `segment_table`, if the encoder has segments."""
        if self.segments:
            self.segment_table = table(
                self, 'segment_embeddings', self.segments, self.embedding_width
            )

    def add_segments(self, x: Tensor, inputs: Inputs) -> Tensor:
        """Adds the embeddings of segments, if any, to x [B, T, D]."""
        if self.segment_table is None:
            return x
        if inputs.segment_ids is None:
            return x + self.segment_table[0]
        return x + ops.take(self.segment_table, inputs.segment_ids, axis=0)

    def start_blocks(
        self, x: Tensor, multipliers: Tensor | None, key: Tensor | None
    ) -> Tensor:
        """Normalizes the sum of the embeddings, and applies dropout.

        Args:
            x: [B, T, D] float32, D the width of the embeddings.
            multipliers: field of `Inputs`.
            key: [2] uint32 for dropout; None: inference.

        Returns:
            [B, T, D] in the compute dtype; without a key flattened [B T, D],
            so that no later operation has to change a shape.
        """
        if key is None:
            x = ops.reshape(x, (-1, self.embedding_width))
        else:
            x = row_major(x)
            key = dropout.fold_in(key, len(self.blocks))
        if self.gamma is None:
            x = dropout.drop(x, key=key, rate=self.rate)
            x = ops.cast(x, self.compute_dtype)
        else:
            x = self._normalized(
                x, self.gamma, self.beta, key=key, rate=self.rate
            )
        if multipliers is None:
            return x
        return x * ops.reshape(ops.cast(multipliers, x.dtype), ops.shape(x))

    def _normalized(
        self,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor | None,
        *,
        key: Tensor | None,
        rate: float = 0.0,
    ) -> Tensor:
        return pointwise.norm(
            x,
            Norm(gamma, beta, self.epsilon, self.rms),
            dtype=self.compute_dtype,
            key=key,
            rate=rate,
        )

    def attention_mask(
        self, inputs: Inputs, rule: Tensor | None, key: Tensor | None
    ) -> Tensor | None:
        """Builds the mask `allowed` of `Block.call`: within blocks, by a rule.

        Args:
            inputs: fields of the view, blocks among them.
            rule: [1, 1, T, T] bool, or None.
            key: None makes numbers of the mask (`attention.as_numbers`).

        Returns:
            None: tokens attend to all tokens.
        """
        allowed, blocks = rule, inputs.block_ids
        if blocks is not None:
            allowed = ops.equal(
                blocks[:, None, :, None], blocks[:, None, None, :]
            )  # [B, 1, T, T]
            if rule is not None:
                allowed = ops.logical_and(allowed, rule)
        if inputs.hidden is not None:
            shown = ops.equal(inputs.hidden, 0)[:, None, None]
            allowed = (
                shown if allowed is None else ops.logical_and(allowed, shown)
            )
        if key is None and allowed is not None:
            allowed = as_numbers(allowed, self.compute_dtype)
        return allowed

    def run_blocks(
        self,
        x: Tensor,
        length: Any,
        places: Tensor | None,
        key: Tensor | None,
        *learned: Tensor,
        all_layers: bool | str,
        arguments_of: Callable[[int, Tensor | None], dict[str, Any]],
    ) -> Encoded:
        """Runs the blocks one after another, and the norm after the last.

        Args:
            x: result of `start_blocks`.
            length: T.
            places, key, all_layers: arguments of `Encoder.call`.
            *learned: tensors that all blocks read after x, with a gradient.
            arguments_of: (number of a block, its places) -> its other
                arguments.
        """
        flat_length = length if key is None else None
        keys, layers = dropout.keys_of(key, len(self.blocks)), [x]
        for i, block in enumerate(self.blocks):
            is_last = i == len(self.blocks) - 1 and all_layers is not True
            at = places if is_last else None
            more = arguments_of(i, at)
            run: Callable[..., Tensor] = functools.partial(
                block, places=at, key=keys[i], length=flat_length, **more
            )
            # Under remat other arguments would have no gradient.
            if self.remat and key is not None:
                run = remat(run, block)
            x = run(x, *learned)
            if all_layers and not is_last:
                layers.append(x)
        if self.last_gamma is not None:
            x = self._normalized(
                x, self.last_gamma, self.last_beta, key=key
            )
            if all_layers is True:
                layers[-1] = x
        if flat_length is not None:
            shape = (-1, flat_length, self.width)
            if all_layers:
                layers = [ops.reshape(states, shape) for states in layers]
            if all_layers is True:
                x = layers[-1]
            elif places is None:
                x = ops.reshape(x, shape)
        if all_layers is True and places is not None:
            x = take(x, places)
        return Encoded(x, layers if all_layers else ())
