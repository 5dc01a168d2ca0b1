"""A trained workdir in memory: strings in, answers out.

    model = infoword_tf.load('runs/quickstart')
    model.encode(['a sentence', 'another'])        # float32 [2, D]
    model.fill_mask('read a [MASK] file')
    model.next_tokens('returns a list of')         # tokens, log p
    model.classify(['a question'], ['a passage'])  # converted classifiers
    model.answer(['who?'], ['a long context'])
    model.tag(['Ada lives in Turin'])              # spans of named entities
    model.encode_tokens(['a text'])                # a vector of each token
    model.encode_sparse(['a text'])                # weights of the vocabulary

Every workdir gives vectors; what else it answers depends on its rows
(`Row.answers`).
"""

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from infoword_tf.config import Config
from infoword_tf.critics import CRITICS, Critic
from infoword_tf.critics.late import LateVectors
from infoword_tf.critics.lexical import LexicalWeights
from infoword_tf.inference import variants
from infoword_tf.inference.batches import RolePredictor
from infoword_tf.inference.blanks import Blanks
from infoword_tf.inference.classes import Classes
from infoword_tf.inference.continuation import Continuation
from infoword_tf.inference.pair_scores import PairScores
from infoword_tf.inference.reader import Reader
from infoword_tf.inference.states import States
from infoword_tf.inference.tagger import Tagger
from infoword_tf.inference.vectors import Vectors
from infoword_tf.workdir import Workdir


def _of(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a method of `Loaded` that calls `method` of the attribute `name`.

    Signature and documentation are those of `method`.
    """

    @functools.wraps(method)
    def call(self: 'Loaded', *args: Any, **kwargs: Any) -> Any:
        return method(getattr(self, name), *args, **kwargs)

    return call


@functools.cache
def _answer(critic: type[Critic], methods: type) -> type[RolePredictor]:
    """Makes the class of answers of `methods`, as of `Critic.answer`."""
    names = {'__module__': methods.__module__, 'critic': critic}
    return type(methods.__name__, (methods, RolePredictor), names)


def _variant(make: Callable[..., Workdir]) -> Callable[..., 'Loaded']:
    """Makes a method of `Loaded` that returns a variant of the workdir."""

    @functools.wraps(make)
    def call(self: 'Loaded', *args: Any, **kwargs: Any) -> 'Loaded':
        return Loaded(make(self.workdir, *args, **kwargs))

    return call


class Loaded:
    """A workdir in memory, with all answers of the model.

    Attributes:
        workdir: the model, its tokenizer and config.
        states: ids to states, which all answers are computed from.
        vectors, blanks, continuation, classes, cross, reader, tagger: the
            answers.
        by_critic: answers of critics that encode texts of a role, by name; they
            are attributes, too: `late`, `lexical`.
    """

    def __init__(self, workdir: Workdir):
        """Makes the answers; graphs are traced at the first call."""
        self._answer_by(workdir)

    def _answer_by(self, workdir: Workdir) -> None:
        self.workdir = workdir
        self.states = states = States(workdir)
        self.vectors, self.blanks = Vectors(states), Blanks(states)
        self.continuation = Continuation(states)
        self.classes, self.reader = Classes(states), Reader(states)
        self.tagger, self.cross = Tagger(states), PairScores(states)
        self.by_critic = {
            # mypy takes the class for one of its objects.
            name: _answer(critic, methods)(states)  # type: ignore[arg-type]
            for name, critic in CRITICS.items()
            if (methods := critic.answer()) is not None
        }
        vars(self).update(self.by_critic)

    # ------------------------------------------------------------- answers

    encode = _of('vectors', Vectors.encode)
    embed = _of('vectors', Vectors.embed)
    embed_tokens = _of('vectors', Vectors.embed_tokens)
    embed_pieces = embed_tokens  # the name of older versions
    word_vectors = _of('vectors', Vectors.word_vectors)
    vector_width = _of('vectors', Vectors.width)
    tokenize = _of('vectors', Vectors.tokenize)
    tokenized = tokenize  # the name of older versions
    encode_tokenized = _of('vectors', Vectors.encode_tokenized)
    cut = property(attrgetter('vectors.cut'), doc='`Vectors.cut`.')
    encode_tokens = _of('late', LateVectors.encode)
    encode_sparse = _of('lexical', LexicalWeights.encode)
    terms = _of('lexical', LexicalWeights.terms)
    fill_mask = _of('blanks', Blanks.fill_mask)
    token_scores = _of('blanks', Blanks.token_scores)
    piece_scores = token_scores  # the name of older versions
    next_tokens = _of('continuation', Continuation.next_tokens)
    next_pieces = next_tokens  # the name of older versions
    classify = _of('classes', Classes.classify)
    scores = _of('classes', Classes.scores)
    text_scores = _of('classes', Classes.text_scores)
    class_scores = _of('classes', Classes.class_scores)
    choose = _of('classes', Classes.choose)
    rate = _of('classes', Classes.rate)
    score_pairs = _of('cross', PairScores.score_pairs)
    answer = _of('reader', Reader.answer)
    tag = _of('tagger', Tagger.tag)
    tag_words = _of('tagger', Tagger.tag_words)
    rows_that = _of('states', States.rows_that)
    format_texts = _of('states', States.format_texts)
    laid_out = format_texts  # the name of older versions

    # --------------------------------------------------------- the workdir

    model = property(attrgetter('workdir.model'))
    encoder = property(attrgetter('workdir.encoder'))
    tokenizer = property(attrgetter('workdir.tokenizer'))
    unigram = property(attrgetter('workdir.unigram'))
    weights = property(attrgetter('workdir.weights'))
    missing = property(attrgetter('workdir.missing'))
    layout = property(attrgetter('workdir.layout'))
    template = property(attrgetter('workdir.template'))
    before = property(attrgetter('workdir.before'))
    after = property(attrgetter('workdir.after'))
    max_length = property(attrgetter('workdir.max_length'))
    write = _of('workdir', Workdir.write)
    start = _of('workdir', Workdir.start)

    @property
    def config(self) -> Config:
        """The config; assigning another changes all answers."""
        return self.workdir.config

    @config.setter
    def config(self, config: Config) -> None:
        # The graphs of the old config must not answer.
        workdir = variants.with_config(self.workdir, config)
        vars(self).clear()
        self._answer_by(workdir)

    # ------------------------------------------------------------ variants

    with_config = _variant(variants.with_config)
    with_layout = _variant(variants.with_layout)
    untrained = _variant(variants.untrained)
    shortened = _variant(variants.shortened)

    @functools.cached_property
    def folded(self) -> 'Loaded':
        """The workdir whose embeddings hold the weights of tokens."""
        workdir = variants.folded(self.workdir)
        return self if workdir is self.workdir else Loaded(workdir)
