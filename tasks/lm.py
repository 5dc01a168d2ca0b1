r"""Language modelling: how well a model knows which word comes next.

    python -m tasks.lm --init=runs/transformer_xl --corpus=pydocs \
        --workdir=runs/transformer_xl_lm
    python -m tasks.lm --init=runs/wikitext --corpus='lines:wiki.test.txt' \
        --seq_len=64 --memory_length=256 --workdir=runs/wikitext_lm

All of --corpus is scored, or the files of --heldout. If --init was trained on
that corpus, only what was held out there is scored; the output says which. The
text is read as one stream, --seq_len pieces at a time, with --memory_length
tokens of memory; both may be longer than in training (Dai et al. 2019 set
--clamp and --same_length then). Every piece is scored exactly once, including
the ends of documents (of `lines:`, of lines); the first one follows such an
end. Three figures give the same total in different units:

    perplexity per piece    depends on the vocabulary of pieces
    perplexity per word     words between white space; each end is a word too
    bits per character      of the text as it is in its files

With --tokenizer=words every piece is a word, and the perplexity is what is
published: line ends count, and `<unk>` is a type like any other. A text that
was lower-cased is another text, of fewer bits: there are none per character
then. [UNK] hides what it stands for, so how often it was scored is printed; a
word `<unk>` of the text itself is one [UNK].

The last line of the output is one JSON object, also in WORKDIR/metrics.json.

    python -m tasks.lm --sample --init=runs/gpt --prompt='returns a list of' \
        --tokens=50 --temperature=0.8 --top_p=0.9 --seed=1

generates text instead, until a document ends; the same seed gives the same
text. The last line is one JSON object here too.
"""

import dataclasses
import json
import math
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infoword_tf import commands, errors, progress
from infoword_tf.choices import DeviceChoices, again, by_language, flag
from infoword_tf.plan import answering

if TYPE_CHECKING:  # they import TensorFlow, or Keras
    from infoword_tf.config import Config
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    init: str | None = flag(
        None, 'The workdir of a finished run of a language model: of gpt, '
        'transformer_xl or rnn_lm.', model=True)
    corpus: str | None = flag(
        None, 'The text that is scored, as of infoword_tf.train: pydocs, '
        'text:GLOB, lines:GLOB, jsonl:GLOB[:FIELD] ... If --init was '
        'trained on it, only what was held out there; of tfds: a held-out '
        'split.')
    heldout: str | None = flag(
        None, 'GLOB of the files to score instead, or a split of tfds:.')
    seq_len: int | None = flag(
        None, "Pieces read at a time; by default the run's own.", at_least=1)
    memory_length: int | None = flag(
        None, "Tokens of memory; by default the run's own, 0: none.",
        at_least=0)
    clamp: int | None = flag(
        None, 'Clip relative distances at this many tokens; by default the '
        "run's own.", at_least=1)
    same_length: bool | None = flag(
        None, 'Every token attends to as many tokens as the memory holds; by '
        "default the run's own.")
    batch_size: int = flag(
        1, 'Parts of the text that are scored in parallel: faster, but each '
        'part starts without memory.', at_least=1)
    precision: str = again(DeviceChoices, 'precision', 'float32')
    workdir: str | None = flag(None, 'Where metrics.json is written.')
    sample: bool = flag(False, 'Generate text instead of scoring one.')
    prompt: str = flag('', 'The text that --sample continues.')
    tokens: int = flag(
        50, 'The most pieces that --sample generates.', at_least=1)
    temperature: float = flag(
        1.0, 'Sampling temperature of --sample; 0: greedy, the likeliest '
        'piece.', at_least=0.0)
    top_p: float = flag(
        1.0, 'Nucleus sampling of --sample: from the fewest pieces that have '
        'this share of the probability.', at_least=1e-6, at_most=1.0)
    seed: int = flag(0, 'Random seed of --sample.', at_least=0)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of the encoder, where they are not the run's own."""
        found = {'clamp': self.clamp, 'same_length': self.same_length}
        return {k: v for k, v in found.items() if v is not None}


# Of scoring alone.
SCORING = 'corpus', 'heldout', 'seq_len', 'memory_length', 'workdir'


# ------------------------------------------------------------------------ text


def part_of(
    corpus: Any, config: 'Config', init: str, heldout: str | None = None
) -> tuple[Callable[[], Iterator[Any]], str, str]:
    """What of a corpus is scored by the workdir `init` of a config.

    Returns:
        Its documents, 'all' or 'heldout', and the same in words.
    """
    from infoword_tf.training import record

    if corpus.every is None:
        what = f'what {corpus.name} holds out'
        if heldout:
            what = f'--heldout={heldout}'
        return corpus.heldout, 'heldout', what
    # Of those that held out a part, not files.
    runs = record.runs(config)
    for run in runs:
        fingerprints = (run.get(record.FINGERPRINT) or '').split()
        names = by_language(run.get('corpus'))
        files = by_language(run.get('heldout'), names)
        parted = {
            name for language, name in names.items() if language not in files
        }
        if parted and (
            corpus.name in parted or corpus.fingerprint in fingerprints
        ):
            what = f'what is held out of {corpus.name}'
            why = 'was trained on the rest'
            return corpus.heldout, 'heldout', f'{what}; {init} {why}'
    why = 'does not say what it was trained on'
    if texts := [
        name for run in runs for name in by_language(run.get('corpus')).values()
    ]:
        why = f'was trained on {", ".join(dict.fromkeys(texts))}'
    return corpus.every, 'all', f'all of {corpus.name}; {init} {why}'


class Counted:
    """Documents that are counted while they pass.

    Attributes:
        words: between white space, with one for the end of each document.
        characters: of the text where it is from.
        unknown: words `<unk>`.
    """

    def __init__(self, documents: Iterable[Any]):
        """Args: documents to iterate over, once."""
        self._documents = documents
        self.words = self.characters = self.unknown = 0

    def __iter__(self) -> Iterator[Any]:
        """The same documents."""
        from infoword_tf.data.documents import UNKNOWN

        for document in self._documents:
            for sentence in document.sentences:
                words = sentence.split(' ')
                self.words += len(words)
                self.unknown += words.count(UNKNOWN)
            self.words += 1
            self.characters += (
                len(document.text) + 1
                if document.characters is None
                else document.characters
            )
            yield document


# --------------------------------------------------------------------- scoring


def next_piece_row(loaded: 'Loaded', init: str) -> str:
    """The row of the workdir `init` that scores the next piece.

    Raises:
        errors.UsageError: it has none, or its weights are missing.
    """
    rows = loaded.config.rows
    for row in answering(('next',), rows):
        if row in loaded.missing:
            raise errors.UsageError(
                f'--init={init} cannot score the next piece: '
                f'{loaded.missing[row]}'
            )
        return row
    raise errors.UsageError(
        f'--init={init} was trained on {", ".join(rows)}, which score no next '
        f'piece; name a run of {" or ".join(answering(("next",)))}'
    )


def score(
    model: 'Model',
    row: str,
    specials: Any,
    store: Any,
    length: int,
    memory_length: int,
    batch_size: int = 1,
) -> tuple[float, int]:
    """Scores every piece of a text once.

    Args:
        model, row: of its rows the one that scores.
        specials: of the vocabulary.
        store: the text.
        length, memory_length, batch_size: as of `Choices`.

    Returns:
        Nats in all; pieces.
    """
    import tensorflow as tf

    from infoword_tf import views
    from infoword_tf.data import streams
    from infoword_tf.objectives import Statistics
    from infoword_tf.objectives.lm import VIEW

    objective = model.objectives[row]
    statistics = Statistics(store.counts, store.counts)

    @tf.function(autograph=False)
    def step(flat: Any, state: Any) -> tuple[Any, Any]:
        batches, memories = model.batches(
            views.unflatten(flat), statistics, state=state
        )
        return objective.score(batches[row], None).loss, memories

    state = {
        name: entry.empty
        for name, entry in model.empty_state(batch_size, memory_length).items()
        if name == f'memory/{VIEW}'  # scoring needs no more
    }
    nats, pieces = 0.0, 0
    with progress.bar(
        total=len(store.ids), desc='scoring', unit=' pieces', unit_scale=True
    ) as bar:
        for text, weights in streams.once(store, length, batch_size):
            view = views.VIEWS[VIEW].make(text, None, {row: 'text'}, specials)
            view = view._replace(weights={row: weights})
            flat = views.flatten({objective.view: view})
            loss, state = step(
                {name: tf.constant(x) for name, x in flat.items()}, state
            )
            nats += float(loss)
            pieces += int(weights.sum())
            bar.update(int(weights.sum()))
    return nats, pieces


def figures(
    nats: float, pieces: int, words: int, characters: int | None
) -> dict[str, float]:
    """A total in nats as perplexities and, where characters are kept, bits."""
    values = {
        'perplexity_per_piece': math.exp(nats / pieces),
        'perplexity_per_word': math.exp(nats / words),
    }
    if characters is not None:
        values['bits_per_character'] = nats / math.log(2) / characters
    return values


# --------------------------------------------------------------------- the run


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command: returns what its last line says."""
    return sample(given) if given.sample else score_text(given)


def sample(given: Choices) -> dict[str, Any]:
    """Generates text.

    Raises:
        errors.UsageError: a flag of scoring; a model that cannot.
    """
    commands.require(vars(given), init='the workdir of a finished run')
    for name in SCORING:
        if getattr(given, name) is not None:
            raise errors.UsageError(
                f'--{name} is not for --sample; leave one of the two out'
            )
    import infoword_tf

    loaded = infoword_tf.load(given.init, 'float32', given.arguments)
    next_piece_row(loaded, given.init)

    import tensorflow as tf

    from infoword_tf.inference.continuing import continued

    tokenizer = loaded.tokenizer
    ids = tokenizer.tokenize(tf.constant([given.prompt]))[0].numpy().tolist()
    found = continued(
        loaded, ids, given.tokens, given.temperature, given.top_p, given.seed
    )
    text = tokenizer.text([*ids, *found])
    record = {
        'task': 'lm',
        'weights': given.init,
        'prompt': given.prompt,
        'text': text,
        'tokens': len(found),
        'ended': len(found) < given.tokens,
        'temperature': given.temperature,
        'top_p': given.top_p,
        'seed': given.seed,
    }
    print(text)
    print(json.dumps(record), flush=True)
    return record


def score_text(given: Choices) -> dict[str, Any]:
    """Scores the text; returns what metrics.json holds."""
    commands.require(
        vars(given),
        init='the workdir of a finished run',
        corpus='pydocs, text:GLOB, lines:GLOB or tfds:NAME',
        workdir='a folder for metrics.json',
    )
    workdir = commands.result_folder(given.workdir)
    from infoword_tf.data import corpora
    from infoword_tf.data import store as stores

    corpus = corpora.open_corpus(given.corpus, given.heldout, whole=True)

    import infoword_tf
    from infoword_tf.training import precision

    decided = given.precision
    if decided == 'auto':
        decided = precision.faster()
    loaded = infoword_tf.load(given.init, decided, given.arguments)
    model, tokenizer = loaded.model, loaded.tokenizer
    row = next_piece_row(loaded, given.init)
    config, encoder = loaded.config, model.encoder
    memory_length = given.memory_length
    if memory_length is None:
        memory_length = config.memory_length or 0
    elif memory_length and not encoder.has_memory:
        raise errors.UsageError(
            f'--memory_length={memory_length}: the encoder '
            f'{config.encoder.name} has no memory; leave it out'
        )
    length = given.seq_len or config.max_length
    if 'positions' in encoder.input_fields and length > encoder.max_length:
        raise errors.UsageError(
            f'--seq_len={length}: the encoder has {encoder.max_length} '
            'positions; lower it'
        )
    read, part, what = part_of(corpus, config, given.init, given.heldout)
    print(f'scored: {what}', flush=True)
    documents = Counted(
        stores.peek(
            read(),
            f'--corpus={given.corpus} has no documents to score; give more '
            'text, or name files with --heldout=GLOB',
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        text = stores.write_store(
            pathlib.Path(folder) / 'text', documents, tokenizer
        )
        nats, pieces = score(
            model, row, tokenizer.specials, text, length, memory_length,
            given.batch_size,
        )  # fmt: skip
        unknown = int(text.counts[tokenizer.unk_id])
    characters = None if tokenizer.lower_case else documents.characters
    record = {
        'task': 'lm',
        'corpus': given.corpus,
        'heldout': given.heldout,
        'part': part,
        'weights': given.init,
        'seq_len': length,
        'memory_length': memory_length,
        **given.arguments,
        'batch_size': given.batch_size,
        'nats': nats,
        'pieces': pieces,
        'words': documents.words,
        'characters': documents.characters,
        'unknown_pieces': unknown,
        'unknown_words_of_the_text': documents.unknown,
        'lower_case': tokenizer.lower_case,
        **figures(nats, pieces, documents.words, characters),
    }
    memory = f'{memory_length} tokens of memory'
    if encoder.remembers and not encoder.has_memory:
        memory = 'its state goes on'
    elif not memory_length:
        memory = 'no memory'
    print(table(record, memory))
    commands.record(workdir, record)
    return record


def table(record: Mapping[str, Any], memory: str) -> str:
    """What was measured, and what was known of the text before, for people."""
    bits = 'none: the text was lower-cased'
    if 'bits_per_character' in record:
        bits = f'{record["bits_per_character"]:10.3f}'
    return (
        f'{record["pieces"]:,} pieces, {record["words"]:,} words, '
        f'{record["characters"]:,} characters; {record["seq_len"]} pieces '
        f'at a time, {memory}\n'
        f'[UNK]: {record["unknown_pieces"]:,} of the pieces, '
        f'{record["unknown_words_of_the_text"]:,} of them written so in '
        'the text\n'
        f'perplexity per piece  {record["perplexity_per_piece"]:10.2f}\n'
        f'perplexity per word   {record["perplexity_per_word"]:10.2f}\n'
        f'bits per character    {bits}'
    )


if __name__ == '__main__':
    commands.start(run)
