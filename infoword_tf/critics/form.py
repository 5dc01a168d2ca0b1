"""The form in which a row compares texts in training.

To the candidates of a batch each text is one array of F numbers, its compared
form, whichever critic compares them.

Shapes: J examples of a sequence, S texts of an example, N = B J, F numbers of a
text, G numbers of a text before the last step.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from infoword_tf.lazy import ops
from infoword_tf.settings import Configurable
from infoword_tf.tensors import Tensor
from infoword_tf.views import View


class Compared(NamedTuple):
    """Texts of a view that a row compares.

    Attributes:
        view: all texts, by sequence.
        slots: J S.
        places: [B, J S] int32, where each text begins; None: the row reads all
            states of `Critic.reads`.
        weights: [N, S] float32, 0 for no text; None: the row has none.
        first: index of the first one among the texts of an example; 0: a.
    """

    view: View
    slots: int
    places: Tensor | None = None
    weights: Tensor | None = None
    first: int = 0


class TextForm(Configurable):
    """The compared form of texts in a row.

    Attributes:
        more: names of further measures of held-out text.
        symmetric: whether the scores of a batch of a with itself serve both
            directions; False where another product costs as little.
        prefixes: further widths of a form, which the loss counts too.
        row: the objective that compares; it owns the weights.
        layer: the head, which the model owns.
    """

    more: ClassVar[tuple[str, ...]] = ()
    symmetric: ClassVar[bool] = True
    prefixes: Sequence[int] = ()

    def __init__(self, row: Any, chosen: Mapping[str, Any]):
        """Sets the row that compares, and settings of the critic."""
        self.set_values(chosen)
        self.row = row
        self.layer: Any = None

    @property
    def normed(self) -> bool:
        """True if the form of a text depends on others of the batch."""
        return False

    def build(self) -> None:
        """Makes weights of training, which are of the row."""

    def set_head(self, layer: Any) -> None:
        """Sets the head, which the model owns."""
        self.layer = layer

    def set_dense(self, dense: Sequence[Any]) -> None:
        """Sets dense layers over vectors, which the model owns.

        Raises:
            ValueError: they do not fit a weight of training.
        """

    @property
    def poolings(self) -> Mapping[str, Sequence[Any]]:
        """Learned poolings, of layers.pooling.LEARNED, with all weights."""
        return {}

    @property
    def key_width(self) -> int:
        """Numbers of a queued vector; 0: no queue."""
        return 0

    @property
    def width(self) -> int:
        """Numbers that `--ROW.dims` may shorten; 0: none."""
        return 0

    def set_prefixes(self, widths: Sequence[int]) -> None:
        """Sets `prefixes` to the widths that are less than the whole."""
        self.prefixes = [x for x in widths if x < self.width]

    def limit(self, longest: tuple[int, int]) -> None:
        """Leaves out places at which no a, or no b, has a token.

        Args:
            longest: tokens of the longest a and b of all batches; 0: of any
                length.
        """

    def encoded(self, batch: Any, name: str) -> Any:
        """Returns the states of a view: `Encoded`."""
        return batch.encoded[name]['encoder'][0]

    def pooled(self, batch: Any, texts: Compared, encoded: Any) -> Tensor:
        """Pools all texts, [N S, G] float32, each without the others.

        Args:
            batch: input of the step.
            texts: all texts of a view.
            encoded: their states, [B, T, D], or at `texts.places`.
        """
        raise NotImplementedError

    def finished(
        self, batch: Any, texts: Compared, pooled: Tensor, norm: Any = None
    ) -> Tensor:
        """Computes the compared form of texts.

        Args:
            batch, texts: arguments of `pooled`.
            pooled: [N, S, G].
            norm: result of `norm`; None: that of the texts.

        Returns:
            [N, S, F] float32.
        """
        raise NotImplementedError

    def norm(self, batch: Any, texts: Compared, pooled: Tensor) -> Any:
        """Computes the norm of held-out text, for all forms of a batch.

        Args as of `finished`.
        """
        del batch, texts, pooled

    def part(self, texts: Tensor, width: int | None) -> Tensor:
        """Returns the first `width` numbers of texts [..., F]; None: all."""
        del width
        return texts

    def scores(
        self, a: Tensor, b: Tensor, width: int | None, key: Tensor | None
    ) -> Tensor:
        """Scores each a [N, F] against each b [M, F]: [N, M] float32.

        By the dot product, unless a critic overrides it.

        Args:
            a, b: results of `part`.
            width: numbers of a part; None: they are whole.
            key: None runs plain operations.
        """
        del width, key
        return ops.matmul(a, ops.transpose(b))

    def paired(self, a: Tensor, b: Tensor, width: int | None) -> Tensor:
        """Scores pairs of a [N, F] and b: [N]; as of `scores`."""
        del width
        return ops.sum(a * b, axis=1)

    def compared(
        self,
        sides: tuple[Tensor, Tensor],
        states: Tensor,
        are_passages: bool,
        width: int | None,
        key: Tensor | None,
    ) -> Tensor:
        """Compares texts with candidates: [N, M] float32.

        f(query, passage), whichever of both is searched for.

        Args:
            sides: queries and passages [N, F], of which one is compared.
            states: [M, F], the candidates.
            are_passages: whether candidates are passages, not queries.
            width, key: arguments of `scores`.
        """
        if are_passages:
            return self.scores(sides[0], states, width, key)
        return ops.transpose(self.scores(states, sides[1], width, key))

    def pair_scores(self, batch: Any, states: Tensor) -> Tensor:
        """Scores pairs that are encoded as one: [N, M, D] -> [N, M] float32.

        Only of critics `of_pairs`, which have nothing else of this class.
        """
        raise NotImplementedError

    @property
    def scale(self) -> Tensor | None:
        """Learned factor of scores; None: none."""
        return None

    def of_queue(
        self, temperature: float, width: int | None
    ) -> dict[str, Any]:
        """Returns how a queue of earlier vectors is scored, as arguments of
        `queue_scores`.

        Args:
            temperature: divisor of scores.
            width: argument of `scores`.
        """
        del temperature, width
        return {}

    def hardened(
        self, others: Tensor, scores: Tensor, earlier: Any
    ) -> tuple[Tensor, Any]:
        """Weighs negatives by scores; most critics weigh all the same.

        Args:
            others: [N, M] weights, 0 for no candidate.
            scores: [N, M].
            earlier: `QueueScores` of a queue, or None.
        """
        del scores
        return others, earlier

    def with_terms(
        self,
        batch: Any,
        outcome: Any,
        sides: Sequence[tuple[Tensor, Tensor]],
    ) -> Any:
        """Adds regularisers and `more`; most critics have none.

        Args:
            batch: input of the step.
            outcome: result of the row.
            sides: forms [N, s, F] of queries, and which are real, [N, s]
                float32; and of passages.
        """
        del batch, sides
        return outcome

    def empty_state(self) -> dict[str, Tensor]:
        """Creates the state of the first step; most critics have none."""
        return {}

    def update_state(self, batch: Any) -> dict[str, Tensor]:
        """Returns the state of the next step."""
        del batch
        return {}
