"""What every encoder is: inputs in, states out, and the memory between.

Glossary of shapes: B batch, T tokens, Q places, D width, L layers,
V vocabulary.
"""

from typing import Any, NamedTuple

from infoword_tf.layers.activation import FORMS
from infoword_tf.layers.attention import table
from infoword_tf.layers.block import put
from infoword_tf.lazy import Layer, ops
from infoword_tf.settings import Settled, setting
from infoword_tf.views import Specials, View

Tensor = Any
ACTIVATION = setting(  # of encoders that have a feed-forward
    'gelu_tanh',
    "Activation of the feed-forward: gelu_tanh (Google's BERT and XLNet), "
    "gelu_erf (Hugging Face's) or relu (Transformer-XL's).",
    choices=FORMS,
    flag='activation',
)


class Inputs(NamedTuple):
    """What an encoder reads: the fields of a view that say what stands where.

    An encoder takes those that it knows, and complains of the others.

    Attributes:
        ids: [B, T] int32.
        positions: [B, T] int32; None: 0, 1, 2, ...
        segment_ids: [B, T] int32; None: all 0.
        block_ids: [B, T] int32: tokens see tokens of their own block (packed
            rows; padding is a block of its own); None: one block.
        ranks, sees: [B, T] int32: token i sees j where sees[i] > ranks[j],
            and always itself; a query by the former alone. None: all.
        directions: [B] int32, -1 for rows whose text is reversed, so that
            distances are those of the text; None: all 1.
        first: [B, P, D], states that the first layer reads in place of what
            the embeddings give (positions, segments, norm and dropout among
            them) at the positions `first_places` [B, P], -1 for none. None:
            nothing is replaced.
        kept: [B, T, D] float32, what embeddings are multiplied by, after their
            norm and dropout; None: by nothing.
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
    kept: Tensor | None = None

    @classmethod
    def of(cls, view: View) -> 'Inputs':
        """What a view has of these; it is [B, T] then."""
        return cls(*(getattr(view, name, None) for name in cls._fields))


class Encoded(NamedTuple):
    """What every encoder returns.

    Attributes:
        states: [B, Q, D] at the places asked for, [B, T, D] without places.
        layers: all states [B, T, D], embeddings first (L + 1 of them, or L
            below the last), or None where they were not asked for.
        state: what the next step remembers, as `Encoder.empty_state` has it,
            where a state was given; else None.
    """

    states: Tensor
    layers: list[Tensor] | None = None
    state: Any = None


class Encoder(Settled, Layer):
    """g_omega of the table; its fields are its arguments.

    Attributes:
        arguments: by name, as config.json keeps them.
        input_fields: names of `Inputs` that change its states.
        remembers: whether it has a state that goes on from step to step.
        has_memory: whether that state is of a number of tokens, which a run
            chooses; else it is of one size, and always there.
        causal: whether no token reads a later one; some are told so.
        contextual: whether a state depends on more than its own piece.
        biased: whether dense layers and norms have biases, those of heads over
            it too.
        can_remat: whether it can compute what is inside a block once more for
            the gradient, instead of keeping it (Chen et al. 2016, "Training
            Deep Nets with Sublinear Memory Cost").
        remat: whether it does.
        embedding_table: [V, D] float32, the input embeddings: g_psi of the
            lookup rows.
    """

    input_fields: tuple[str, ...] = ('ids',)
    remembers: bool = False
    has_memory: bool = False
    causal: bool = False
    contextual: bool = True
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
        """The only constructor of an encoder; `build()` makes the weights.

        Args:
            dtype: Keras dtype policy.
            name: first part of every weight's path.
            **chosen: of the arguments, those that are not as by default.

        Raises:
            TypeError, ValueError: arguments that there are not, or that do
                not fit together.
        """
        super().__init__(dtype=dtype, name=name)
        self.settle(chosen)
        self.blocks: list[Any] = []
        self.make_blocks()
        self.arguments = {
            name: list(value) if isinstance(value, list) else value
            for name in self.settings
            for value in [getattr(self, name)]
        }

    @property
    def embedding_width(self) -> int:
        """D, but where an encoder widens its embeddings."""
        return self.width

    @property
    def depth(self) -> int:
        """L."""
        return len(self.blocks)

    @property
    def query_weights(self) -> list[Any]:
        """Weights that the query stream alone has: no state depends on them."""
        return []

    def make_blocks(self) -> None:
        """Completes what the arguments leave open, and makes the layers.

        Raises:
            ValueError: arguments that do not fit together.
        """

    def build(self) -> None:
        """Makes the weights, each under an explicit path; here of blocks."""
        for block in self.blocks:
            block.build()
        self.built = True

    def spell(self, specials: Specials) -> None:
        """Says what pieces look like, to an encoder that reads characters.

        Before it computes; most encoders know pieces by their numbers.
        """

    def make_embedding_table(self) -> None:
        """Makes `embedding_table`, whose path says whose it is."""
        self.embedding_table = table(
            self, 'word_embeddings', self.vocab_size, self.embedding_width
        )

    def lookup(self, ids: Tensor) -> Tensor:
        """g_psi of the lookup rows: ids [...] -> input embeddings [..., D].

        float32, since scores are.
        """
        # A table in bfloat16 is one of an export.
        return ops.cast(ops.take(self.embedding_table, ids, axis=0), 'float32')

    def entered(self, x: Tensor, inputs: Inputs) -> Tensor:
        """Puts `Inputs.first` in its places.

        Args:
            x: [B, T, D] or its rows [B T, D], what the embeddings give.
            inputs: of the encoder.

        Returns:
            The shape of x: what the first layer reads.
        """
        if inputs.first is None:
            return x
        tokens = ops.reshape(x, (*ops.shape(inputs.ids), self.width))
        tokens = put(tokens, inputs.first, inputs.first_places)
        return ops.reshape(tokens, ops.shape(x))

    def empty_state(self, batch: int, length: int) -> Any:
        """What remembers nothing yet: arrays in a named tuple or a dict.

        Args:
            batch: B.
            length: tokens that are remembered, where `has_memory`.

        Raises:
            ValueError: this encoder has no memory.
        """
        raise ValueError(f'{type(self).__name__} remembers nothing')

    def check_inputs(self, inputs: Inputs) -> None:
        """Complains of inputs that would change nothing.

        Raises:
            ValueError: one that this encoder does not read.
        """
        for name, value in inputs._asdict().items():
            if value is not None and name not in self.input_fields:
                raise ValueError(
                    f'{type(self).__name__} does not read {name}; it reads '
                    f'{", ".join(self.input_fields)}'
                )

    def call(
        self,
        inputs: Inputs,
        places: Tensor | None = None,
        key: Tensor | None = None,
        all_layers: bool | str = False,
        state: Any = None,
        advance: int | None = None,
        queries: bool = False,
    ) -> Encoded:
        """Encodes a view.

        Args:
            inputs: what it reads.
            places: [B, Q] int32: where states are wanted; the last layer then
                computes these alone. None: everywhere.
            key: [2] uint32 for dropout, or None for inference. Also where B
                or T are not known before the graph runs, as under Keras'
                `fit`.
            all_layers: whether to return every layer's states too; 'below':
                of those below the last alone, which may then compute
                `places` alone.
            state: of the step before; None: nothing is remembered.
            advance: how many of the first tokens the next step has behind it
                (XLNet's reuse); None: all.
            queries: whether states of the query stream are wanted, at
                `places`.

        Returns:
            `Encoded`; states in the compute dtype.

        Raises:
            ValueError: what does not fit together, or this encoder.
        """
        raise NotImplementedError
