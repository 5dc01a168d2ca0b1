"""The contract of a critic: how f(a, b) compares two texts, a query a with a
passage b.

A critic is one file of this folder, and a line in CRITICS. Its class says what
holds for any model (settings, the entry in config.json, the head); an instance
is what a row with that critic compares in training. Nothing outside asks which
critic it is.

To the candidates of a batch each text is one array of F numbers, its compared
form, whichever critic compares them.

Shapes: J examples of a sequence, S texts of an example, N = B J, F numbers of a
text, G numbers of a text before the last step.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from infoword_tf.config import Config
from infoword_tf.lazy import ops
from infoword_tf.settings import Configurable
from infoword_tf.views import Reads, Specials, View

Tensor = Any


class Start(NamedTuple):
    """Knowledge of a run by which a critic decides the head.

    Attributes:
        config: that of --init; None: there is none.
        width: D.
        sides: settings of the two sides of pairs; {}: no pairs are read.
        blanks: settings of the rows of --init that fill masks.
        activation: of their output transform; None: the encoder's, or no
            transform.
    """

    config: Config | None = None
    width: int = 0
    sides: Mapping[str, Any] = {}
    blanks: Sequence[Mapping[str, Any]] = ()
    activation: str | None = None


class Compared(NamedTuple):
    """Texts of a view that a row compares.

    Attributes:
        view: all texts, by sequence.
        count: J S.
        places: [B, J S] int32, where each text begins; None: the row reads all
            states of `Critic.reads`.
        weights: [N, S] float32, 0 for no text; None: the row has none.
        first: which text of an example the first one is; 0: a.
    """

    view: View
    count: int
    places: Tensor | None = None
    weights: Tensor | None = None
    first: int = 0


@dataclasses.dataclass(frozen=True)
class HeadConfig:
    """Entry of a critic in config.json, which decides the head."""

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Inverts `written`; a missing key has the default."""
        return cls(**values)

    def written(self) -> dict[str, Any]:
        """Converts to types of JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


class Critic(Configurable):
    """A way to compare two texts.

    Attributes:
        name: as in CRITICS, and of the layer of its head.
        help: what is compared, for --help; `{a}` and `{b}` stand for the texts.
        head_config: the class of its entry in config.json; None: it has no
            head.
        usual_temperature: what its scores are divided by, unless a run says so.
        of_pairs: whether it encodes both texts at once, so that no text has a
            form of its own.
        has_vector: whether a text is one vector, which further rows may read.
        lacks: settings of rows that are not for it, by name; the values that
            are not, or (): none is.
        more: names of further measures of held-out text.
        described: what has no place in a public folder without it.
        signature: of an export, which encodes texts of the role passage, or
            scores pairs.
        has_dims: whether the first numbers of vectors may be compared alone.
        compares_few: whether a search compares so much that it is of few texts.
        inverted: whether a search holds texts in memory, by token.
        stored: kinds of numbers of an index, the default first; (): none is
            made.
        symmetric: whether the scores of a batch of a with itself serve both
            directions; False where another product costs as little.
        normed: whether the form of a text depends on others of the batch.
        prefixes: further widths of a form, which the loss counts too.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    head_config: ClassVar[type[HeadConfig] | None] = None
    usual_temperature: ClassVar[float] = 1.0
    of_pairs: ClassVar[bool] = False
    has_vector: ClassVar[bool] = False
    lacks: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    more: ClassVar[tuple[str, ...]] = ()
    described: ClassVar[str] = ''
    signature: ClassVar[str] = 'embed'
    has_dims: ClassVar[bool] = True
    compares_few: ClassVar[bool] = False
    inverted: ClassVar[bool] = False
    stored: ClassVar[tuple[str, ...]] = ()
    symmetric: ClassVar[bool] = True
    normed: bool = False
    prefixes: Sequence[int] = ()

    # ------------------------------------------------------------ of a model

    @classmethod
    def of(cls, config: Config | None) -> Any:
        """Returns the entry in a config; None: the model has no head."""
        values = None if config is None else config.critics.get(cls.name)
        return None if values is None else cls.head_config.parse(values)

    @classmethod
    def decide(cls, chosen: Mapping[str, Any], start: Start) -> HeadConfig:
        """Decides the entry of a run; only of critics with a head.

        Args:
            chosen: what `vector` calls `head`.
            start: what else is known.
        """
        raise NotImplementedError

    @classmethod
    def make_head(
        cls, entry: Any, encoder: Any, specials: Specials, dtype: Any
    ) -> Any:
        """Makes the layer of an entry, called `name`, unbuilt.

        Args:
            entry: as of `decide`.
            encoder: whose states it reads, and whose weights are not its own.
            specials: of the vocabulary.
            dtype: Keras dtype policy.
        """
        raise NotImplementedError

    @classmethod
    def fits(cls, old: Any, new: Any) -> bool:
        """Tells whether weights of one entry fit another; None: no head."""
        return True

    @classmethod
    def begins_as(cls, rows: Mapping[str, Any]) -> str | None:
        """Names the row of --init whose weights the head begins with.

        Where --init has no such head.

        Args:
            rows: of --init, by name.
        """
        del rows

    # ------------------------------------------------------ of a loaded model

    @classmethod
    def answer(cls) -> type | None:
        """Returns the methods by which a loaded model encodes texts.

        A class without a base, which inference/loaded.py joins with
        `RolePredictor`: `head`, `entries`, `most_texts`, `width` of an entry,
        `outputs` of a signature, `encode` and `encode_tokenized`. None: texts
        are vectors, or pairs.
        """

    @classmethod
    def width_in(cls, loaded: Any) -> int:
        """Returns the width of the vectors of a loaded model."""
        return loaded.vector_width()

    @classmethod
    def tokenize(cls, loaded: Any, texts: list[str], role: str | None) -> Any:
        """Tokenizes texts of a role that are encoded again and again."""
        return loaded.by_critic[cls.name].tokenize(texts, role)

    @classmethod
    def encode(
        cls, loaded: Any, texts: Any, role: str | None, **settings: Any
    ) -> Any:
        """Encodes texts for a search.

        Args:
            loaded: an inference.loaded.Loaded.
            texts: strings in a list, or as `tokenize` returns.
            role: in config.ROLES; None: the default.
            settings: arguments of `encode` of vectors, or of `answer`.

        Returns:
            Texts as of texts.py.
        """
        answer = loaded.by_critic[cls.name]
        if isinstance(texts, list):
            return answer.encode(texts, role=role, **settings)
        return answer.encode_tokenized(texts, role=role, **settings)

    @classmethod
    def signature_of(cls, config: Config, role: str, folder: Any) -> str:
        """Names the signature of an export that encodes texts of a role.

        Args:
            config: of the export.
            role: in config.ROLES.
            folder: for errors.
        """
        del config, folder
        return cls.signature + ('_query' if role == 'query' else '')

    @classmethod
    def joined(
        cls, outputs: Sequence[Mapping[str, np.ndarray]], config: Config,
        role: str | None,
    ) -> Any:  # fmt: skip
        """Joins outputs of the signature: texts as of texts.py.

        Args:
            outputs: of batches, by name.
            config: of the export.
            role: of the texts.
        """
        raise NotImplementedError

    # ----------------------------------------------------- of public folders

    @classmethod
    def takes_head(cls, entry: Any) -> str | None:
        """Names the row that public formats know the head as, when read."""
        del entry

    @classmethod
    def with_head(
        cls, entry: Any, has_weights: bool, activation: str | None
    ) -> Any:
        """Returns the entry with the values of a public head.

        Args:
            entry: as of `takes_head`.
            has_weights: whether it has more than the encoder's.
            activation: of its output transform; None: the encoder's.
        """
        raise NotImplementedError

    @classmethod
    def writes_head(cls, entry: Any) -> tuple[str, dict[str, Any]] | None:
        """Returns the row that public formats know the head as, when written.

        With settings of that row; None: they do not know it.
        """
        del entry

    @classmethod
    def check_public(
        cls,
        entry: Any,
        where: str,
        arguments: Mapping[str, Any],
        vectors: Any,
        first: bool,
    ) -> None:
        """Raises ValueError where a public model compares otherwise.

        Args:
            entry: of the critic.
            where: for errors.
            arguments: of the encoder.
            vectors: the `VectorSettings`.
            first: whether the first state of a text is pooled.
        """

    # ------------------------------------------------------- of a row, as data

    @classmethod
    def reads(cls, settings: Mapping[str, Any]) -> Reads | None:
        """Returns the reading of `simcse` of a view of texts; None: none."""
        del settings
        return None if cls.of_pairs else Reads('example', everywhere=True)

    @classmethod
    def takes_lookup(cls, settings: Mapping[str, Any]) -> bool:
        """Tells whether an encoder may be without context."""
        del settings
        return False

    @classmethod
    def vector(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns fields of `Vector` that settings of a row decide.

        `head` are those that decide the head; all rows have the same.
        """
        chosen = {name: settings[name] for name in cls.of_head()}
        return {'critic': cls.name, 'head': chosen}

    @classmethod
    def of_head(cls) -> tuple[str, ...]:
        """Names the settings that decide the head."""
        return ()

    @classmethod
    def sides_of(cls, config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns settings that a run has of an --init of the same critic.

        Returns:
            Those of the view of pairs, and of the row.
        """
        sizes = {
            'query_length': config.query_length,
            'passage_length': config.passage_length,
        }
        return {name: size for name, size in sizes.items() if size}, {}

    # --------------------------------------------------- of a row, in training

    def __init__(self, row: Any, chosen: Mapping[str, Any]):
        """Sets the row that compares, and settings of the critic."""
        self.set_values(chosen)
        self.row = row
        self.layer: Any = None

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
            batch: of the step.
            texts: all texts of a view.
            encoded: their states, [B, T, D], or at `texts.places`.
        """
        raise NotImplementedError

    def finished(
        self, batch: Any, texts: Compared, pooled: Tensor, norm: Any = None
    ) -> Tensor:
        """Computes the compared form of texts.

        Args:
            batch, texts: as of `pooled`.
            pooled: [N, S, G].
            norm: as of `norm`; None: that of the texts.

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

        Args:
            a, b: as of `part`.
            width: of the parts; None: they are whole.
            key: None runs plain operations.
        """
        raise NotImplementedError

    def paired(self, a: Tensor, b: Tensor, width: int | None) -> Tensor:
        """Scores pairs of a [N, F] and b: [N]; as of `scores`."""
        raise NotImplementedError

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
            width, key: as of `scores`.
        """
        if are_passages:
            return self.scores(sides[0], states, width, key)
        return ops.transpose(self.scores(states, sides[1], width, key))

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
            temperature: that divides scores.
            width: as of `scores`.
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
            batch: of the step.
            outcome: of the row.
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
