"""The contract of a critic: how f(a, b) compares two texts, a query a with a
passage b.

A critic is one file of this folder, and a line in CRITICS. Its class says what
holds for all models: settings, the entry in config.json, the head, what a
loaded model answers, searches, exports and public folders. An instance is the
`TextForm` that a row compares in training. Nothing outside asks which critic it
is.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from infoword_tf.config import Config
from infoword_tf.critics.form import TextForm
from infoword_tf.errors import InputError
from infoword_tf.views import Reads, Specials


class Start(NamedTuple):
    """Knowledge of a run by which a critic decides the head.

    Attributes:
        config: that of --init; None: there is none.
        width: D.
        sides: settings of the two sides of pairs; {}: no pairs are read.
        blanks: settings of the rows of --init that fill masks.
        transform: activation and epsilon of their output transform, by name;
            None: the encoder's, or no transform.
    """

    config: Config | None = None
    width: int = 0
    sides: Mapping[str, Any] = {}
    blanks: Sequence[Mapping[str, Any]] = ()
    transform: Mapping[str, Any] = {}


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


class RoleMethods:
    """The base of methods of a loaded model, see `Critic.answer`.

    `RolePredictor` has what is named here, and is not imported before a model
    is loaded, since TensorFlow comes with it.

    Attributes:
        critic: the critic whose `answer` the class is.
        workdir: model, tokenizer and config.
        states: ids to states.
        config: config of the workdir.
    """

    critic: type['Critic']
    workdir: Any
    states: Any
    config: Config
    _arrays: Callable[..., list[np.ndarray]]
    _arrays_of: Callable[..., list[np.ndarray]]

    @property
    def head(self) -> Any:
        """The entry of the critic; ValueError: the model has none."""
        if (entry := self.critic.of(self.config)) is None:
            raise InputError(
                'no_head_of_critic',
                f'{self.states.rows_text} do not make {self.critic.described}; '
                f'train with --simcse.critic={self.critic.name}, or bring in a '
                'model that makes them',
            )
        return entry

    @property
    def layer(self) -> Any:
        """The layer of the head."""
        return self.workdir.model.critics[self.critic.name]


class Critic(TextForm):
    """A way to compare two texts.

    Attributes:
        name: name in CRITICS, and of the layer of its head.
        help: text for --help about what is compared; `{a}` and `{b}` stand for
            the texts.
        head_config: the class of its entry in config.json; None: it has no
            head.
        usual_temperature: divisor of its scores, unless a run has another.
        of_pairs: whether it encodes both texts at once; no text has a form of
            its own then, and the instance has `pair_scores` alone.
        has_vector: whether the vector of `encode` is what is trained, which
            further rows may read (`SentenceCosine.projected`).
        of_vectors: whether a search compares vectors, not `Tokens` or weights.
        similarity: comparison of vectors by a search, `cosine` or `dot`; None:
            that of the config.
        lacks: settings of rows that are not for it, by name; the values that
            are not, or (): none is.
        described: words for what a public folder without it has no place for.
        public: class of sentence-transformers that reads a model with a head of
            it; None: none does.
        signature: name of the one of an export that encodes texts of the role
            passage, or scores pairs.
        has_dims: whether the first numbers of vectors may be compared alone.
        compares_few: whether a search compares so much that it is of few texts.
        card: text for the card of an export about how texts are compared; '':
            by vectors.
        card_outputs: text for the card about outputs of `signature`, by name.
        card_axes: letters for the card of axes of outputs, where not known.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    head_config: ClassVar[type[HeadConfig] | None] = None
    usual_temperature: ClassVar[float] = 1.0
    of_pairs: ClassVar[bool] = False
    has_vector: ClassVar[bool] = False
    of_vectors: ClassVar[bool] = False
    similarity: ClassVar[str | None] = None
    lacks: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    described: ClassVar[str] = ''
    public: ClassVar[str | None] = None
    signature: ClassVar[str] = 'embed'
    has_dims: ClassVar[bool] = True
    compares_few: ClassVar[bool] = False
    card: ClassVar[str] = ''
    card_outputs: ClassVar[Mapping[str, str]] = {}
    card_axes: ClassVar[str] = 'BT'

    # ------------------------------------------------------------ of a model

    @classmethod
    def of(cls, config: Config | None) -> Any:
        """Returns the entry in a config; None: the model has no head."""
        if config is None or cls.head_config is None:
            return None
        values = config.critics.get(cls.name)
        return None if values is None else cls.head_config.parse(values)

    @classmethod
    def decide(cls, chosen: Mapping[str, Any], start: Start) -> HeadConfig:
        """Decides the entry of a run; only of critics with a head.

        Args:
            chosen: settings that `vector` calls `head`.
            start: all else that is known.
        """
        raise NotImplementedError

    @classmethod
    def make_head(
        cls, entry: Any, encoder: Any, specials: Specials, dtype: Any
    ) -> Any:
        """Makes the layer of an entry, called `name`, unbuilt.

        Args:
            entry: result of `decide`.
            encoder: source of the states that it reads, whose weights are not
                its own.
            specials: properties of the vocabulary.
            dtype: Keras dtype policy.
        """
        raise NotImplementedError

    @classmethod
    def fits(cls, old: Any, new: Any) -> bool:
        """Tells whether weights of one entry fit another; None: no head."""
        return True

    @classmethod
    def begins_as(cls, config: Config) -> Sequence[str]:
        """Names weights of --init that the head begins with.

        Where --init has no such head: a weight is that of the first of them
        that has one of its name.

        Args:
            config: that of --init.

        Returns:
            First parts of paths: `objectives/ROW`, or the name of a critic.
        """
        del config
        return ()

    # ------------------------------------------------------ of a loaded model

    @classmethod
    def answer(cls) -> type[RoleMethods] | None:
        """Returns the methods by which a loaded model encodes texts.

        inference/loaded.py joins the class with `RolePredictor`: `entries`,
        `most_texts`, `width` of an entry, `outputs` of a signature,
        `encode` and `encode_tokenized`. None: texts are vectors, or pairs.
        """
        return None

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
            role: name in config.ROLES; None: the default.
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
            config: config of the export.
            role: name in config.ROLES.
            folder: name for errors.
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
            outputs: outputs of batches, by name.
            config: config of the export.
            role: role of the texts.
        """
        raise NotImplementedError

    # ----------------------------------------------------- of public folders

    @classmethod
    def takes_head(cls, entry: Any) -> str | None:
        """Names the head of weights/heads.py that is read."""
        del entry
        return None

    @classmethod
    def with_head(
        cls, entry: Any, has_weights: bool, settings: Mapping[str, Any]
    ) -> Any:
        """Returns the entry with the values of a public head.

        Args:
            entry: argument of `takes_head`.
            has_weights: whether it has more than the encoder's.
            settings: those of a row with that head.
        """
        raise NotImplementedError

    @classmethod
    def writes_head(cls, entry: Any) -> tuple[str, dict[str, Any]] | None:
        """Names the head of weights/heads.py that is written.

        With settings as of a row; None: public formats do not know it.
        """
        del entry
        return None

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
            entry: entry of the critic.
            where: name for errors.
            arguments: those of the encoder.
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
