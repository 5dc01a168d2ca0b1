"""Language modelling: how well a model knows which word comes next.

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

import json
import math
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from absl import flags

from infoword_tf import commands
from infoword_tf.choices import AUTO
from infoword_tf.plan import answering

if TYPE_CHECKING:  # they import TensorFlow, or Keras
    from infoword_tf.config import Config
    from infoword_tf.encoders import Encoder
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model

# ----------------------------------------------------------------------- flags

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

INIT = flags.DEFINE_string(
    'init', None, 'The workdir of a finished run of a language model: of gpt, '
    'transformer_xl or rnn_lm.',
    flag_values=FLAGS)
CORPUS = flags.DEFINE_string(
    'corpus', None, 'The text that is scored: pydocs, text:GLOB, lines:GLOB or '
    'tfds:NAME[/CONFIG][:FEATURE]. If --init was trained on it, only what was '
    'held out there; of tfds: a held-out split.',
    flag_values=FLAGS)
HELDOUT = flags.DEFINE_string(
    'heldout', None, 'GLOB of the files to score instead, or a split of tfds:.',
    flag_values=FLAGS)
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', None, "Pieces read at a time; by default the run's own.",
    lower_bound=1, flag_values=FLAGS)
MEMORY_LENGTH = flags.DEFINE_integer(
    'memory_length', None, "Tokens of memory; by default the run's own, 0: "
    'none.', lower_bound=0, flag_values=FLAGS)
CLAMP = flags.DEFINE_integer(
    'clamp', None, 'Clip relative distances at this many tokens; by default '
    "the run's own.", lower_bound=1, flag_values=FLAGS)
SAME_LENGTH = flags.DEFINE_bool(
    'same_length', None, 'Every token attends to as many tokens as the memory '
    "holds; by default the run's own.", flag_values=FLAGS)
BATCH_SIZE = flags.DEFINE_integer(
    'batch_size', 1, 'Parts of the text that are scored in parallel: faster, '
    'but each part starts without memory.', lower_bound=1,
    flag_values=FLAGS)
PRECISION = flags.DEFINE_enum(
    'precision', 'float32', ['auto', 'float32', 'mixed_bfloat16'], AUTO,
    flag_values=FLAGS)
WORKDIR = flags.DEFINE_string(
    'workdir', None, 'Where metrics.json is written.', flag_values=FLAGS)
SAMPLE = flags.DEFINE_bool(
    'sample', False, 'Generate text instead of scoring one.', flag_values=FLAGS)
PROMPT = flags.DEFINE_string(
    'prompt', '', 'The text that --sample continues.', flag_values=FLAGS)
TOKENS = flags.DEFINE_integer(
    'tokens', 50, 'The most pieces that --sample generates.', lower_bound=1,
    flag_values=FLAGS)
TEMPERATURE = flags.DEFINE_float(
    'temperature', 1.0, 'Sampling temperature of --sample; 0: greedy, the '
    'likeliest piece.', lower_bound=0.0, flag_values=FLAGS)
TOP_P = flags.DEFINE_float(
    'top_p', 1.0, 'Nucleus sampling of --sample: from the fewest pieces that '
    'have this share of the probability.', lower_bound=1e-6, upper_bound=1.0,
    flag_values=FLAGS)
SEED = flags.DEFINE_integer(
    'seed', 0, 'Random seed of --sample.', lower_bound=0, flag_values=FLAGS)
# Of scoring alone.
SCORING = 'corpus', 'heldout', 'seq_len', 'memory_length', 'workdir'


# ------------------------------------------------------------------------ text


def part_of(
    corpus: Any, config: Any
) -> tuple[Callable[[], Iterator[Any]], str, str]:
    """What of a corpus is scored.

    Args:
        corpus: as `corpora.open_corpus` gives it.
        config: of the workdir that scores.

    Returns:
        Its documents, 'all' or 'heldout', and the same in words.
    """
    from infoword_tf.training import record

    if corpus.every is None:
        what = f'what {corpus.name} holds out'
        if HELDOUT.value:
            what = f'--heldout={HELDOUT.value}'
        return corpus.heldout, 'heldout', what
    # Of those that held out a part, not files.
    runs = record.runs(config)
    for run in (run for run in runs if not run.get('heldout')):
        fingerprints = (run.get(record.FINGERPRINT) or '').split()
        if run.get('corpus') == corpus.name or (
            corpus.fingerprint in fingerprints
        ):
            what = f'what is held out of {corpus.name}'
            why = 'was trained on the rest'
            return corpus.heldout, 'heldout', f'{what}; {INIT.value} {why}'
    why = 'does not say what it was trained on'
    if texts := [run['corpus'] for run in runs if run.get('corpus')]:
        why = f'was trained on {", ".join(dict.fromkeys(texts))}'
    return corpus.every, 'all', f'all of {corpus.name}; {INIT.value} {why}'


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


def next_piece_row(loaded: 'Loaded') -> str:
    """The row of a workdir that scores the next piece.

    Raises:
        commands.UsageError: it has none, or its weights are missing.
    """
    rows = loaded.config.rows
    for row in answering(('next',), rows):
        if row in loaded.missing:
            raise commands.UsageError(
                f'--init={INIT.value} cannot score the next piece: '
                f'{loaded.missing[row]}'
            )
        return row
    raise commands.UsageError(
        f'--init={INIT.value} was trained on {", ".join(rows)}, which score '
        'no next piece; name a run of '
        + ' or '.join(answering(('next',)))
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
        model: encoder and rows.
        row: which of them scores.
        specials: of the vocabulary.
        store: the text.
        length: pieces read at a time.
        memory_length: tokens of memory, 0 for none.
        batch_size: parts of the text that are read beside each other.

    Returns:
        Nats in all; pieces.
    """
    import tensorflow as tf
    import tqdm

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
    with tqdm.tqdm(
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
    found = {
        'perplexity_per_piece': math.exp(nats / pieces),
        'perplexity_per_word': math.exp(nats / words),
    }
    if characters is not None:
        found['bits_per_character'] = nats / math.log(2) / characters
    return found


# --------------------------------------------------------------------- the run


def own_arguments() -> dict[str, Any]:
    """--clamp and --same_length, as arguments of the encoder."""
    return {
        flag.name: flag.value
        for flag in (CLAMP, SAME_LENGTH)
        if flag.value is not None
    }


def choose_memory(model: 'Model', config: 'Config') -> int:
    """--memory_length, or the run's own.

    Raises:
        commands.UsageError: the encoder has none.
    """
    if MEMORY_LENGTH.value is None:
        return config.memory_length or 0
    if MEMORY_LENGTH.value and not model.encoder.has_memory:
        raise commands.UsageError(
            f'--memory_length={MEMORY_LENGTH.value}: the encoder '
            f'{config.encoder.name} has no memory; leave it out'
        )
    return MEMORY_LENGTH.value


def run() -> dict[str, Any]:
    """The whole command: returns what its last line says."""
    return sample() if SAMPLE.value else score_text()


def sample() -> dict[str, Any]:
    """Generates text.

    Raises:
        commands.UsageError: a flag of scoring; a model that cannot.
    """
    values = FLAGS.flag_values_dict()
    commands.require(values, init='the workdir of a finished run')
    for flag in SCORING:
        if values[flag] is not None:
            raise commands.UsageError(
                f'--{flag} is not for --sample; leave one of the two out'
            )
    import infoword_tf

    loaded = infoword_tf.load(INIT.value, 'float32', own_arguments())
    next_piece_row(loaded)

    import tensorflow as tf

    from infoword_tf.inference.continuing import continued

    tokenizer = loaded.tokenizer
    ids = tokenizer.tokenize(tf.constant([PROMPT.value]))[0].numpy().tolist()
    found = continued(
        loaded, ids, TOKENS.value, TEMPERATURE.value, TOP_P.value, SEED.value
    )
    text = tokenizer.text([*ids, *found])
    record = {
        'task': 'lm',
        'weights': INIT.value,
        'prompt': PROMPT.value,
        'text': text,
        'tokens': len(found),
        'ended': len(found) < TOKENS.value,
        'temperature': TEMPERATURE.value,
        'top_p': TOP_P.value,
        'seed': SEED.value,
    }
    print(text)
    print(json.dumps(record), flush=True)
    return record


def score_text() -> dict[str, Any]:
    """Scores the text; returns what metrics.json holds."""
    commands.require(
        FLAGS.flag_values_dict(),
        init='the workdir of a finished run',
        corpus='pydocs, text:GLOB, lines:GLOB or tfds:NAME',
        workdir='a folder for metrics.json',
    )
    workdir = commands.result_folder(WORKDIR.value)
    from infoword_tf.data import corpora
    from infoword_tf.data import store as stores

    corpus = corpora.open_corpus(CORPUS.value, HELDOUT.value, whole=True)

    import infoword_tf
    from infoword_tf.training import precision

    chosen = PRECISION.value
    if chosen == 'auto':
        chosen = precision.faster()
    loaded = infoword_tf.load(INIT.value, chosen, own_arguments())
    model, tokenizer = loaded.model, loaded.tokenizer
    row = next_piece_row(loaded)
    memory_length = choose_memory(model, loaded.config)
    length = SEQ_LEN.value or loaded.config.max_length
    encoder = model.encoder
    if 'positions' in encoder.reads and length > encoder.max_length:
        raise commands.UsageError(
            f'--seq_len={length}: the encoder has {encoder.max_length} '
            'positions; lower it'
        )
    read, part, what = part_of(corpus, loaded.config)
    print(f'scored: {what}', flush=True)
    documents = Counted(
        stores.peek(
            read(),
            f'--corpus={CORPUS.value} has no documents to score; give more '
            'text, or name files with --heldout=GLOB',
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        text = stores.write_store(
            pathlib.Path(folder) / 'text', documents, tokenizer
        )
        nats, pieces = score(
            model,
            row,
            tokenizer.specials,
            text,
            length,
            memory_length,
            BATCH_SIZE.value,
        )
        unknown = int(text.counts[tokenizer.unk_id])
    record = {
        'task': 'lm',
        'corpus': CORPUS.value,
        'heldout': HELDOUT.value,
        'part': part,
        'weights': INIT.value,
        'seq_len': length,
        'memory_length': memory_length,
        **own_arguments(),
        'batch_size': BATCH_SIZE.value,
        'nats': nats,
        'pieces': pieces,
        'words': documents.words,
        'characters': documents.characters,
        'unknown_pieces': unknown,
        'unknown_words_of_the_text': documents.unknown,
        'lower_case': tokenizer.lower_case,
        **figures(
            nats,
            pieces,
            documents.words,
            None if tokenizer.lower_case else documents.characters,
        ),
    }
    print(table(record, memory_of(encoder, memory_length)))
    commands.record(workdir, record)
    return record


def memory_of(encoder: 'Encoder', length: int) -> str:
    """What an encoder knows of the text before, for people."""
    if encoder.remembers and not encoder.has_memory:
        return 'its state goes on'
    return f'{length} tokens of memory' if length else 'no memory'


def table(record: dict[str, Any], memory: str) -> str:
    """What was measured, for people; `memory` as of `memory_of`."""
    bits = 'none: the text was lower-cased'
    if 'bits_per_character' in record:
        bits = f'{record["bits_per_character"]:10.3f}'
    return '\n'.join(
        [
            f'{record["pieces"]:,} pieces, {record["words"]:,} words, '
            f'{record["characters"]:,} characters; {record["seq_len"]} pieces '
            f'at a time, {memory}',
            f'[UNK]: {record["unknown_pieces"]:,} of the pieces, '
            f'{record["unknown_words_of_the_text"]:,} of them written so in '
            'the text',
            f'perplexity per piece  {record["perplexity_per_piece"]:10.2f}',
            f'perplexity per word   {record["perplexity_per_word"]:10.2f}',
            f'bits per character    {bits}',
        ]
    )


if __name__ == '__main__':
    commands.start(run)
