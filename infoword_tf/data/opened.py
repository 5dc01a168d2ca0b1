"""The inputs of a run: a tokenizer, token stores, tokenized pairs, batches.

`open_data` is the table of contents. Stores and learned vocabularies are kept
in the cache, so that the next run on the same text opens them at once.
"""

import functools
import gc
import hashlib
import itertools
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import commands, files
from infoword_tf.choices import (
    VOCAB_SIZE,
    RunChoices,
    TextChoices,
    by_language,
    name_of,
)
from infoword_tf.config import Config
from infoword_tf.data import (
    batches,
    corpora,
    documents,
    pair_tokens,
    parallel,
    text_pairs,
)
from infoword_tf.data import store as stores
from infoword_tf.data.corpora import Corpus
from infoword_tf.data.examples import Examples
from infoword_tf.data.mixture import Mixture, shares
from infoword_tf.data.pair_tokens import TokenizedPairs
from infoword_tf.data.source import StepReader
from infoword_tf.data.store import Store
from infoword_tf.data.text_pairs import TextPairs
from infoword_tf.data.translations import ParallelText
from infoword_tf.errors import InputError, UsageError
from infoword_tf.plan import Plan, SourceSpec
from infoword_tf.views import VIEWS
from infoword_tf.views.pair_candidates import Joining
from infoword_tf.views.sentences import PAIRED


class OpenedText(NamedTuple):
    """Opened corpora.

    Attributes:
        tokenizer: tokenizer of all stores.
        train, heldout: a token store, or a mixture of several languages.
        fingerprint: changes when the text does.
    """

    tokenizer: Any
    train: Store | Mixture
    heldout: Store | Mixture
    fingerprint: str

    @property
    def by_language(self) -> dict[str, tuple[Store, Store]]:
        """Training and held-out store of each language; '' of a single one."""
        train, heldout = map(_stores_of, (self.train, self.heldout))
        return {
            language: (store, heldout[language])
            for language, store in train.items()
        }


def _stores_of(text: Store | Mixture) -> Mapping[str, Store]:
    """Returns stores by language; '' for a single one."""
    return text.stores if isinstance(text, Mixture) else {'': text}


class RunData(NamedTuple):
    """Inputs of a run, opened.

    Attributes:
        started: the `Workdir` of --init; None: there is none.
        text: the corpus; None: no row reads text.
        pairs, translations: likewise the texts of --pairs and --parallel.
        tokenizer: tokenizer of all texts.
        counts: [V] int64, occurrences of tokens in what is trained on.
        batches: global batch of every step.
    """

    started: Any
    text: OpenedText | None
    pairs: TokenizedPairs[TextPairs] | None
    translations: TokenizedPairs[ParallelText] | None
    tokenizer: Any
    counts: np.ndarray
    batches: batches.Batches

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest a and b of --pairs; without pairs 0."""
        if self.pairs is None:
            return 0, 0
        train, heldout = self.pairs.train.longest, self.pairs.heldout.longest
        return max(train[0], heldout[0]), max(train[1], heldout[1])


def open_data(
    choices: RunChoices,
    plan: Plan,
    started: Any = None,
    examples: Examples | None = None,
    texts: Mapping[str, Corpus] | None = None,
    open_guides: Callable[[], Mapping[str, Any]] = dict,
) -> RunData:
    """Opens the corpus and the pairs of a run, and tokenizes new text.

    Args:
        choices: checked.
        plan: views, sources and draws of the rows.
        started: the `Workdir` of --init; None: there is none.
        examples: labelled texts to train on; None: no row reads such.
        texts: opened corpora by language; None: they are opened here.
        open_guides: opens the guides and judges of --pairs, by flag.

    Raises:
        UsageError, ValueError: as `open_text`, or pairs or translations cannot
            be read.
    """
    tokenizer = started and started.tokenizer
    bitexts, spoken = None, {}
    if plan.reads('translations'):
        bitexts = parallel.read(
            choices.parallel, choices.heldout_parallel, choices.drop_equal
        )
        spoken = _by_side(bitexts)
    text = pairs = parallel_texts = None
    if plan.reads('text'):
        text = open_text(choices, tokenizer, spoken, texts)
        tokenizer = text.tokenizer
        if started is not None:
            text = _prompted(text, started.config)
    if plan.reads('pairs'):
        tokenizer, pairs = open_pairs(
            choices,
            tokenizer,
            started=started and started.config,
            sides=sides_of(plan),
            open_guides=open_guides,
        )
    if bitexts is not None:
        if tokenizer is None:
            tokenizer = open_tokenizer(choices, spoken, files.cache_dir())
        parallel_texts = pair_tokens.of_translations(
            choices, tokenizer, bitexts
        )
    counts = _token_counts(
        tokenizer,
        started,
        text=text,
        pairs=pairs,
        parallel_texts=parallel_texts,
    )
    sources = batches.open_sources(
        text and text.train, plan, choices.batch_size, choices.seed,
        examples=examples,
        pairs=pairs and pairs.train,
        translations=parallel_texts and parallel_texts.train,
        shuffle_block=choices.shuffle_block,
    )  # fmt: skip
    _print_single(sources, plan)
    drawn = batches.Batches(sources, plan, tokenizer.specials, choices.seed)
    return RunData(
        started=started,
        text=text,
        pairs=pairs,
        translations=parallel_texts,
        tokenizer=tokenizer,
        counts=counts,
        batches=drawn,
    )


def _by_side(bitexts: text_pairs.PairCorpus) -> dict[str, Corpus]:
    """Makes corpora of the sides of translations, by language."""
    return {
        language: Corpus(
            f'--parallel ({language})',
            bitexts.fingerprint,
            train=functools.partial(bitexts.documents_of, language),
            heldout=corpora.no_documents,
        )
        for language in bitexts.languages
    }


def _print_single(sources: Mapping[SourceSpec, StepReader], plan: Plan) -> None:
    """Prints how many documents of one sentence are omitted."""
    for source_spec, source in sources.items():
        if source.single is not None:
            print(
                f'{source.single:,} documents have one sentence and no '
                f'part in {", ".join(plan.readers(source_spec))}',
                flush=True,
            )


def kind_of(vocab: str) -> str:
    """Names the tokenizer of a vocabulary by the name of the file."""
    if vocab.endswith('.model'):
        return 'sentencepiece'
    if vocab.endswith('.json'):
        return 'bytes'
    return 'words' if vocab.endswith('words.txt') else 'wordpiece'


def choose_tokenizer(choices: TextChoices) -> str:
    """Names the tokenizer that was chosen, or that a vocabulary is for.

    Raises:
        UsageError: choices that do not go together.
    """
    kind, vocab = choices.tokenizer, choices.vocab
    if not vocab:
        return kind or 'wordpiece'
    needed = kind_of(vocab)
    says_all = needed in ('sentencepiece', 'bytes')
    if not says_all and kind == 'words':
        needed = kind  # as any file of one word a line
    if kind not in (None, needed):
        raise UsageError(
            'other_tokenizer',
            f'--tokenizer={kind}: --vocab={vocab} is for {needed} (the names '
            'of SentencePiece models end in .model, those of byte pairs in '
            '.json, those of words in words.txt); leave out one of the two',
        )
    if choices.vocab_size is not None:
        raise UsageError(
            'vocab_and_size',
            f'--vocab_size={choices.vocab_size} is for a vocabulary that is '
            f'learned, not for --vocab={vocab}; leave out one of the two',
        )
    if says_all and choices.lower_case is not None:
        raise UsageError(
            'vocab_decides_case',
            f'--lower_case is decided by --vocab={vocab}; leave it out',
        )
    return needed


def open_corpora(
    choices: TextChoices, cache: pathlib.Path | None = None
) -> dict[str, Corpus]:
    """Opens all chosen corpora, by language, sorted; '' if only one.

    Raises:
        UsageError: none was chosen, or held-out files are of a language that no
            corpus has.
        ValueError: as `corpora.open_corpus`.
    """
    names = by_language(choices.corpus)
    heldout = by_language(choices.heldout, names)
    if not names:
        raise UsageError(
            'missing_corpus',
            '--corpus is missing: name a text, as --corpus=text:GLOB',
        )
    for language, pattern in heldout.items():
        if language not in names:
            listed = ', '.join(filter(None, names))
            raise UsageError(
                'heldout_language',
                f'--heldout={language}={pattern}: no --corpus has this '
                f'language; there is {listed or "none"}'
                if language
                else f'--heldout={pattern}: of which language? There are '
                f'{listed}: --heldout=LANGUAGE={pattern}',
            )
    return {
        language: corpora.open_corpus(name, heldout.get(language), cache)
        for language, name in names.items()
    }


def weights_of(choices: TextChoices) -> dict[str, float]:
    """Reads --corpus_weights, by name of each corpus; {}: no weights.

    Raises:
        UsageError: the weights do not fit --corpus.
    """
    weights, names = {}, by_language(choices.corpus)
    for entry in choices.corpus_weights:
        name, _, number = entry.partition('=')
        name = name_of(name)
        if name not in names or '' in names:
            listed = ', '.join(filter(None, names))
            raise UsageError(
                'weight_of_no_corpus',
                f'--corpus_weights={entry}: no --corpus has this name; there '
                f'is {listed or "none, as --corpus=web=text:GLOB"}',
            )
        try:
            weights[name] = float(number)
        except ValueError:
            weights[name] = 0.0
        if not 0 < weights[name] < math.inf:
            raise UsageError(
                'bad_corpus_weight',
                f'--corpus_weights={entry}: give a name and a number above 0, '
                'as web=3',
            )
    if weights and (lacking := sorted(set(names) - set(weights))):
        raise UsageError(
            'corpus_without_weight',
            f'--corpus_weights={",".join(choices.corpus_weights)}: '
            f'{", ".join(lacking)} has none; give each --corpus one',
        )
    return weights


def open_tokenizer(
    choices: TextChoices,
    texts: Mapping[str, Corpus],
    cache: pathlib.Path,
) -> Any:
    """Reads the tokenizer of --vocab, or learns one from the text.

    Several languages have shares in proportion to their sizes to the power of
    --language_exponent, or those of --corpus_weights: of larger ones some
    sentences are skipped.

    Raises:
        UsageError: as `choose_tokenizer`.
        ValueError: the vocabulary cannot be read, or none be learned.
    """
    from infoword_tf.text.tokenizers import TOKENIZERS

    kind = TOKENIZERS[choose_tokenizer(choices)]
    lower_case = choices.lower_case
    if lower_case is None:
        lower_case = not kind.as_written
    if choices.vocab:
        return kind.read(choices.vocab, lower_case)
    size = choices.vocab_size or (None if kind.unbounded else VOCAB_SIZE)
    key = f'{fingerprint_of(texts)}-{size}-{lower_case}'
    weights = {}
    if len(texts) > 1:
        weights = weights_of(choices)
        exponent = f'{choices.language_exponent:g}'
        key += f'-{sorted(weights.items()) or exponent}'
    learned = cache / 'vocabularies' / f'{_digest(key)}.{kind.file}'
    digest = learned.with_name(f'{learned.name}.digest')
    if learned.exists():
        # Vocabularies of older versions have no digest.
        if digest.exists() and digest.read_text() != files.digest_of(learned):
            raise InputError(
                'damaged_vocabulary',
                f'{learned} is damaged: its bytes are not those that were '
                'written; delete it and run again',
            )
        return kind.read(learned, lower_case)
    began = time.monotonic()
    text = _to_learn(texts, choices.language_exponent, weights)
    tokenizer = kind.learn(
        commands.bar(text, 'reading for a vocabulary', unit=' texts'),
        sys.maxsize if size is None else size,
        lower_case,
    )
    learned.parent.mkdir(parents=True, exist_ok=True)
    with files.written(learned) as partial:
        tokenizer.write(partial)
        with files.written(digest) as first:
            first.write_text(files.digest_of(partial))
    print(
        f'learned {len(tokenizer):,} tokens in '
        f'{time.monotonic() - began:.0f} s',
        flush=True,
    )
    return tokenizer


def fingerprint_of(texts: Mapping[str, Corpus]) -> str:
    """Joins the fingerprints of texts, by language."""
    if len(texts) == 1:
        return next(iter(texts.values())).fingerprint
    return ' '.join(f'{k} {x.fingerprint}' for k, x in texts.items())


def _to_learn(
    texts: Mapping[str, Corpus], exponent: float, weights: Mapping[str, float]
) -> Iterator[str]:
    """Yields the text from which a vocabulary is learned."""
    if len(texts) == 1:
        (corpus,) = texts.values()
        for document in corpus.train():
            yield ' '.join(documents.split_at_unknown(document.text))
        return
    sizes = [
        sum(len(s) for document in corpus.train() for s in document.sentences)
        for corpus in texts.values()
    ]
    rates = shares(sizes, exponent)
    if weights:
        rates = shares([weights[name] for name in texts], 1.0)
    rates = rates / sizes
    for corpus, rate in zip(
        texts.values(), rates / rates.max(), strict=True
    ):
        number = 0
        for document in corpus.train():
            for sentence in document.sentences:
                number += 1
                # A share `rate` of the sentences, evenly spread.
                if math.floor(number * rate) > math.floor((number - 1) * rate):
                    yield ' '.join(documents.split_at_unknown(sentence))


def open_text(
    choices: TextChoices,
    tokenizer: Any = None,
    more: Mapping[str, Corpus] | None = None,
    texts: Mapping[str, Corpus] | None = None,
) -> OpenedText:
    """Opens training and held-out text, and prints the sizes.

    Args:
        tokenizer: that of --init; None: one is chosen.
        more: further text, by language, from which a vocabulary is learned.
        texts: opened corpora by language; None: they are opened here.

    Raises:
        UsageError, ValueError: as `open_corpora` and `open_tokenizer`, or the
            text is empty.
    """
    cache = files.cache_dir()
    if texts is None:
        texts = open_corpora(choices, cache)
    if tokenizer is None:
        tokenizer = prepared_tokenizer(choices, texts) or open_tokenizer(
            choices, together(texts, more or {}), cache
        )
    splits: dict[str, dict[str, Store]] = {'train': {}, 'heldout': {}}
    for language, corpus in texts.items():
        train, heldout = _stores(corpus, tokenizer, cache)
        splits['train'][language], splits['heldout'][language] = train, heldout
        print(
            (f'{language}: ' if len(texts) > 1 else '')
            + f'{corpus.name}: {len(train.ids):,} tokens to train on, '
            f'{len(heldout.ids):,} held out, vocabulary of {len(tokenizer):,}',
            flush=True,
        )
    fingerprint = fingerprint_of(texts)
    if len(texts) == 1:
        (train,), (heldout,) = (x.values() for x in splits.values())
        return OpenedText(tokenizer, train, heldout, fingerprint)
    trained, held = (
        Mixture(by_language, choices.language_exponent, weights_of(choices))
        for by_language in splits.values()
    )
    drawn = zip(trained.stores, trained.shares, strict=True)
    listed = ', '.join(f'{language} {share:.1%}' for language, share in drawn)
    print(f'of the updates: {listed}', flush=True)
    return OpenedText(tokenizer, trained, held, fingerprint)


def _prompted(text: OpenedText, config: Config) -> OpenedText:
    """Returns a text whose sentences have the default prompt of a config."""
    prompt = ''
    if config.prompt is not None:
        prompt = config.prompts.get(config.prompt, '')
    ids = text.tokenizer.tokenize([prompt])[0].numpy().tolist()

    def with_prompt(store: Store | Mixture) -> Store | Mixture:
        if isinstance(store, Store):
            return store._replace(prompt=ids)
        return store._replace(
            stores={k: x._replace(prompt=ids) for k, x in store.stores.items()}
        )

    return text._replace(
        train=with_prompt(text.train), heldout=with_prompt(text.heldout)
    )


def prepared_tokenizer(
    choices: TextChoices, texts: Mapping[str, Corpus]
) -> Any:
    """Reads the tokenizer of prepared text; None: no text is prepared.

    Raises:
        UsageError: another tokenizer is chosen.
        ValueError: the vocabulary is damaged.
    """
    prepared = [x.store for x in texts.values() if x.store is not None]
    if not prepared:
        return None
    for name in ('tokenizer', 'vocab', 'vocab_size', 'lower_case'):
        if getattr(choices, name) is not None:
            raise UsageError(
                'store_decides_vocab',
                f'--{name} was decided when {prepared[0].folder} was prepared; '
                'leave it out',
            )
    return prepared[0].tokenizer()


def _stores(
    corpus: Corpus, tokenizer: Any, cache: pathlib.Path
) -> tuple[Store, Store]:
    """Opens training and held-out store; tokenizes at the first use."""
    if corpus.store is not None:
        if corpus.store.index['identity'] != identity_of(tokenizer):
            raise InputError(
                'store_other_vocabulary',
                f'{corpus.name} was prepared with another vocabulary than '
                'that of the weights, or of the other texts; prepare it with '
                'that one (--vocab)',
            )
        return corpus.store.stores(tokenizer)
    key = '\n'.join(
        [
            corpus.fingerprint,
            str(tokenizer.lower_case),
            tokenizer.identity,
            str(documents.SPLITTING),
        ]
    )
    folder = cache / 'stores' / _digest(key)

    def opened(split: str, kind: str, read: corpora.Documents) -> Store:
        if (folder / split).is_dir():
            return stores.open_store(folder / split, tokenizer)
        text = stores.peek(
            read(),
            f'--corpus={corpus.name} has no {kind} documents; give more text, '
            'or name held-out files with --heldout=GLOB',
        )
        return stores.write_store(folder / split, text, tokenizer)

    return (
        opened('train', 'training', corpus.train),
        opened('heldout', 'held-out', corpus.heldout),
    )


def together(
    texts: Mapping[str, Corpus], more: Mapping[str, Corpus]
) -> dict[str, Corpus]:
    """Joins corpora of one language; sorted by language."""
    grouped: dict[str, list[Corpus]] = {}
    for language, corpus in itertools.chain(texts.items(), more.items()):
        grouped.setdefault(language, []).append(corpus)
    return {k: corpora.chained(group) for k, group in sorted(grouped.items())}


def sides_of(plan: Plan) -> Mapping[str, Any]:
    """Returns the settings of the two sides of --pairs."""
    views = plan.views.items()
    return next(x.settings for name, x in views if VIEWS.root(name) == PAIRED)


def open_pairs(
    choices: RunChoices,
    tokenizer: Any,
    started: Config | None,
    sides: Mapping[str, Any],
    open_guides: Callable[[], Mapping[str, Any]] = dict,
) -> tuple[Any, TokenizedPairs[TextPairs]]:
    """Tokenizes the texts of --pairs.

    Args:
        choices: checked.
        tokenizer: that of --init or of a corpus; None: one is learned.
        started: config of --init; None: there is none.
        sides: settings of the view, see `sides_of`.
        open_guides: opens guides and judges, see `open_data`.

    Returns:
        The tokenizer, with the markers of `sides`, and the examples.
    """
    from infoword_tf.text import added
    from infoword_tf.text.layout import LAYOUTS, layout_of
    from infoword_tf.text.template import Template

    [pattern] = commands.require(vars(choices), pairs='files of pairs')
    pairs = text_pairs.read(
        pattern,
        choices.pair_columns,
        heldout=choices.heldout_pairs,
        delimiter=choices.pair_delimiter,
        negatives=choices.pair_negatives,
    )
    print('\n'.join(pairs.notes), flush=True)
    if tokenizer is None:
        corpus = Corpus(
            pattern,
            pairs.fingerprint,
            train=pairs.documents,
            heldout=corpora.no_documents,
        )
        tokenizer = open_tokenizer(choices, {'': corpus}, files.cache_dir())
    prompts, layout = _prompts_of(started, sides), LAYOUTS['bert']
    if sides['markers']:
        tokenizer = added.with_markers(tokenizer, prompts)
    template = Template(tokenizer, layout)
    if started is not None:
        layout = layout_of(started.layout)
    joining = Joining(
        choices.seq_len, len(layout.between), layout.second_segment
    )
    guides = open_guides()
    numbers = {
        flag.rpartition('.')[0]: guide.numbers for flag, guide in guides.items()
    }
    train, heldout = (
        pair_tokens.of_pairs(
            columns, choices, purpose, template=template, prompts=prompts,
            sides=sides, numbers=numbers,
        )._replace(joining=joining)
        for purpose, columns in (
            ('to train on', pairs.train), ('held out', pairs.heldout),
        )
    )  # fmt: skip
    if empty := sum(file.empty for file in pairs.train):
        print(
            f'{choices.pairs}: {empty:,} rows with an empty a or b are left '
            'out',
            flush=True,
        )
    train = train._replace(
        weights=text_pairs.weights_of(choices.pair_weights, train.files)
    )
    read = {flag: (x.folder, x.digest) for flag, x in guides.items()}
    del guides, numbers
    gc.collect()  # models are full of circles
    return tokenizer, TokenizedPairs(train, heldout, pairs.fingerprint, read)


def _prompts_of(
    started: Config | None, sides: Mapping[str, Any]
) -> tuple[str, str]:
    """Returns the prompts of queries and of passages."""
    if sides['markers']:
        query, passage = sides['markers'].split(',')
        return query, passage
    if started is None:
        return '', ''
    query, passage = (
        started.prompt_text(started.prompt_for(role))
        for role in ('query', 'passage')
    )
    return query, passage


def _token_counts(
    tokenizer: Any,
    started: Any,
    text: OpenedText | None,
    pairs: TokenizedPairs[TextPairs] | None,
    parallel_texts: TokenizedPairs[ParallelText] | None,
) -> np.ndarray:
    """Counts tokens, [V] int64: of the corpus, of --init, else of examples."""
    size = len(tokenizer)
    if text is not None:
        return text.train.counts
    if started is not None:
        counts = started.unigram
        return np.zeros(size, np.int64) if counts is None else counts
    if pairs is not None:
        return pairs.train.tally(size, tokenizer.control_ids)
    if parallel_texts is not None:
        return parallel_texts.train.counts(size)
    return np.zeros(size, np.int64)


def digest_of(tokenizer: Any) -> str:
    """Hashes a vocabulary: 12 hex digits."""
    return _digest(tokenizer.identity)[:12]


def identity_of(tokenizer: Any) -> str:
    """Hashes a tokenizer; equal hashes mean equal ids."""
    options = sorted(tokenizer.options.items())
    return _digest(f'{tokenizer.identity} {tokenizer.lower_case} {options}')


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
