r"""Language modelling: perplexity of a text, and generated text.

    python -m tasks.lm --init=runs/transformer_xl --corpus=pydocs \
        --workdir=runs/transformer_xl_lm
    python -m tasks.lm --init=runs/wikitext --corpus='lines:wiki.test.txt' \
        --seq_len=64 --memory_length=256 --workdir=runs/wikitext_lm

All of --corpus is scored, or the files of --heldout. If --init was trained on
that corpus, only the part held out there is scored; the output says which. The
text is read as one stream, --seq_len tokens at a time, with --memory_length
tokens of memory; both may be longer than in training (Dai et al. 2019 set
--clamp and --same_length then). Every token is scored exactly once, including
the ends of documents (with `lines:`, of lines); the first token follows such an
end. Three figures give the same total in different units:

    perplexity per piece    a piece is a token: depends on the vocabulary
    perplexity per word     words between white space; each end is a word too
    bits per character      of the text in its files

With --tokenizer=words every token is a word, and the perplexity compares with
published ones: line ends count, and `<unk>` is a word. A lower-cased text has
fewer bits than the text in the files, so no bits per character are given. [UNK]
stands for any unknown word, so the number of scored [UNK] is printed; a word
`<unk>` of the text is one [UNK].

The last line of the output is one JSON object, also in WORKDIR/metrics.json.

    python -m tasks.lm --sample --init=runs/gpt --prompt='returns a list of' \
        --tokens=50 --temperature=0.8 --top_p=0.9 --seed=1

generates text instead, until a document ends; the same seed gives the same
text. The last line is a JSON object, too.
"""

import dataclasses
import json
import math
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infoword_tf import commands, errors
from infoword_tf.choices import DeviceChoices, again, by_language, flag
from infoword_tf.resolve import answering

from .retrieval import VectorChoices, decided

if TYPE_CHECKING:  # they import TensorFlow, or Keras
    from infoword_tf.config import Config
    from infoword_tf.inference.loaded import Loaded
    from infoword_tf.model import Model


@dataclasses.dataclass(frozen=True)
class LmChoices:
    """Choices of the command."""

    init: str = flag(
        '', 'The workdir of a finished run of a language model: of gpt, '
        'transformer_xl or rnn_lm.', model=True)
    corpus: str = flag(
        '', 'The text that is scored, as of infoword_tf.train: pydocs, '
        'text:GLOB, lines:GLOB, jsonl:GLOB[:FIELD] ... If --init was '
        'trained on it, only what was held out there; of tfds: a held-out '
        'split.')
    heldout: str | None = flag(
        None, 'GLOB of the files to score instead, or a split of tfds:.')
    seq_len: int | None = flag(
        None, "Tokens read at a time; by default the run's own.", at_least=1)
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
    workdir: str = again(VectorChoices, 'workdir', '')
    sample: bool = flag(False, 'Generate text instead of scoring one.')
    prompt: str = flag('', 'The text that --sample continues.')
    tokens: int = flag(
        50, 'The most tokens that --sample generates.', at_least=1)
    temperature: float = flag(
        1.0, 'Sampling temperature of --sample; 0: greedy, the likeliest '
        'token.', at_least=0.0)
    top_p: float = flag(
        1.0, 'Nucleus sampling of --sample: from the fewest tokens that have '
        'this share of the probability.', at_least=1e-6, at_most=1.0)
    seed: int = flag(0, 'Random seed of --sample.', at_least=0)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the encoder that replace config.json's."""
        values = {'clamp': self.clamp, 'same_length': self.same_length}
        return {k: v for k, v in values.items() if v is not None}


# Flags that --sample refuses.
SCORING = 'corpus', 'heldout', 'seq_len', 'memory_length', 'workdir'


# ------------------------------------------------------------------------ text


def part_of(
    corpus: Any, config: 'Config', init: str, heldout: str | None = None
) -> tuple[Callable[[], Iterator[Any]], str, str]:
    """Decides which documents of a corpus a workdir, `init`, is scored on.

    Returns:
        A function that iterates over the documents; 'all' or 'heldout'; and
        the choice in words.
    """
    from infoword_tf.training import record

    if corpus.every is None:
        what = f'what {corpus.name} holds out'
        if heldout:
            what = f'--heldout={heldout}'
        return corpus.heldout, 'heldout', what
    # Only runs that held out a share of the corpus, instead of other files.
    runs = record.runs(config)
    for run in runs:
        fingerprints = (run.get(record.FINGERPRINT) or '').split()
        names = by_language(run.get('corpus'))
        files = by_language(run.get('heldout'), names)
        split = {
            name for language, name in names.items() if language not in files
        }
        if split and (
            corpus.name in split or corpus.fingerprint in fingerprints
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
    """An iterator over documents that counts words and characters.

    Attributes:
        words: between white space, with one for the end of each document.
        characters: number of them in the files of the text.
        unknown: words `<unk>`.
    """

    def __init__(self, documents: Iterable[Any]):
        """Initializes all counts; `documents` are iterated over once."""
        self._documents = documents
        self.words = self.characters = self.unknown = 0

    def __iter__(self) -> Iterator[Any]:
        """Yields the documents."""
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


def next_token_row(loaded: 'Loaded', init: str) -> str:
    """Returns the row of the workdir `init` that scores the next token.

    Raises:
        errors.UsageError: no row does, or its weights are missing.
    """
    rows = loaded.config.rows
    for row in answering(('next',), rows):
        if row in loaded.missing:
            raise errors.UsageError(
                'token_weights_missing',
                f'--init={init} cannot score the next token: '
                f'{loaded.missing[row]}',
            )
        return row
    raise errors.UsageError(
        'scores_no_token',
        f'--init={init} was trained on {", ".join(rows)}, which score no next '
        f'token; name a run of {" or ".join(answering(("next",)))}',
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
    """Scores every token of a text once.

    Args:
        model, row: a model and the row of it that scores.
        specials: special tokens of the vocabulary.
        store: the text.
        length, memory_length, batch_size: choices of `LmChoices`.

    Returns:
        The sum of all nats; the number of tokens.
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
        if name == f'memory/{VIEW}'  # scoring needs no other state
    }
    nats, tokens = 0.0, 0
    with commands.bar(
        total=len(store.ids), desc='scoring', unit=' tokens', unit_scale=True
    ) as bar:
        for text, weights in streams.once(store, length, batch_size):
            view = views.VIEWS[VIEW].make(text, None, {row: 'text'}, specials)
            view = view._replace(weights={row: weights})
            flat = views.flatten({objective.view: view})
            loss, state = step(
                {name: tf.constant(x) for name, x in flat.items()}, state
            )
            nats += float(loss)
            tokens += int(weights.sum())
            bar.update(int(weights.sum()))
    return nats, tokens


def figures(
    nats: float, tokens: int, words: int, characters: int | None
) -> dict[str, float]:
    """Converts a sum of nats to perplexities and, if possible, to bits.

    `characters` is None of a text that was lower-cased.
    """
    values = {
        'perplexity_per_piece': math.exp(nats / tokens),
        'perplexity_per_word': math.exp(nats / words),
    }
    if characters is not None:
        values['bits_per_character'] = nats / math.log(2) / characters
    return values


# --------------------------------------------------------------------- the run


@commands.takes(LmChoices)
def run(choices: LmChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Scores or generates text; returns the JSON of the last line."""
    return sample(choices) if choices.sample else score_text(choices)


def sample(choices: LmChoices) -> dict[str, Any]:
    """Generates text.

    Raises:
        errors.UsageError: a flag of scoring, or a model without a row that
            scores the next token.
    """
    commands.require(vars(choices), init='the workdir of a finished run')
    commands.refuse(
        {x for x in SCORING if getattr(choices, x) not in (None, '')},
        SCORING, '{} is not for --sample; leave one of the two out',
    )  # fmt: skip
    import infoword_tf

    loaded = infoword_tf.load(choices.init, 'float32', choices.arguments)
    next_token_row(loaded, choices.init)

    import tensorflow as tf

    from infoword_tf.inference.continuation import generate

    tokenizer = loaded.tokenizer
    ids = tokenizer.tokenize(tf.constant([choices.prompt]))[0].numpy().tolist()
    sampled = generate(
        loaded.continuation,
        ids,
        count=choices.tokens,
        temperature=choices.temperature,
        top_p=choices.top_p,
        seed=choices.seed,
    )
    text = tokenizer.detokenize([*ids, *sampled])
    record = {
        'task': 'lm',
        'weights': choices.init,
        'prompt': choices.prompt,
        'text': text,
        'tokens': len(sampled),
        'ended': len(sampled) < choices.tokens,
        'temperature': choices.temperature,
        'top_p': choices.top_p,
        'seed': choices.seed,
    }
    print(text)
    print(json.dumps(record), flush=True)
    return record


def lengths_of(choices: LmChoices, loaded: 'Loaded') -> tuple[int, int]:
    """Returns the tokens of a sequence and of the memory.

    Raises:
        UsageError: the encoder has no memory, or fewer positions.
    """
    config, encoder = loaded.config, loaded.model.encoder
    memory_length = choices.memory_length
    if memory_length is None:
        memory_length = config.memory_length or 0
    elif memory_length and not encoder.has_memory:
        raise errors.UsageError(
            'lm_encoder_without_memory',
            f'--memory_length={memory_length}: the encoder '
            f'{config.encoder.name} has no memory; leave it out',
        )
    length = choices.seq_len or config.max_length
    if 'positions' in encoder.input_fields and length > encoder.max_length:
        raise errors.UsageError(
            'lm_seq_len_over_positions',
            f'--seq_len={length}: the encoder has {encoder.max_length} '
            'positions; lower it',
        )
    return length, memory_length


def score_text(choices: LmChoices) -> dict[str, Any]:
    """Scores a text; returns metrics.json."""
    commands.require(
        vars(choices),
        init='the workdir of a finished run',
        corpus='pydocs, text:GLOB, lines:GLOB or tfds:NAME',
        workdir='a folder for metrics.json',
    )
    workdir = commands.result_folder(choices.workdir)
    from infoword_tf.data import corpora
    from infoword_tf.data import store as stores

    corpus = corpora.open_corpus(choices.corpus, choices.heldout, whole=True)

    import infoword_tf

    dtype = decided(choices.precision)
    loaded = infoword_tf.load(choices.init, dtype, choices.arguments)
    model, tokenizer = loaded.model, loaded.tokenizer
    row = next_token_row(loaded, choices.init)
    config, encoder = loaded.config, model.encoder
    length, memory_length = lengths_of(choices, loaded)
    read, part, what = part_of(corpus, config, choices.init, choices.heldout)
    print(f'scored: {what}', flush=True)
    documents = Counted(
        stores.peek(
            read(),
            f'--corpus={choices.corpus} has no documents to score; give more '
            'text, or name files with --heldout=GLOB',
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        text = stores.write_store(
            pathlib.Path(folder) / 'text', documents, tokenizer
        )
        nats, tokens = score(
            model,
            row,
            specials=tokenizer.specials,
            store=text,
            length=length,
            memory_length=memory_length,
            batch_size=choices.batch_size,
        )
        unknown = int(text.counts[tokenizer.unk_id])
    characters = None if tokenizer.lower_case else documents.characters
    record = {
        'task': 'lm',
        'corpus': choices.corpus,
        'heldout': choices.heldout,
        'part': part,
        'weights': choices.init,
        'seq_len': length,
        'memory_length': memory_length,
        **choices.arguments,
        'batch_size': choices.batch_size,
        'nats': nats,
        'pieces': tokens,
        'words': documents.words,
        'characters': documents.characters,
        'unknown_pieces': unknown,
        'unknown_words_of_the_text': documents.unknown,
        'lower_case': tokenizer.lower_case,
        **figures(nats, tokens, documents.words, characters),
    }
    memory = f'{memory_length} tokens of memory'
    if encoder.remembers and not encoder.has_memory:
        memory = 'a state that goes on'
    elif not memory_length:
        memory = 'no memory'
    print(table(record, memory))
    commands.record(workdir, record)
    return record


def table(record: Mapping[str, Any], memory: str) -> str:
    """Formats a result for people; `memory` in words."""
    bits = 'none: the text was lower-cased'
    if 'bits_per_character' in record:
        bits = f'{record["bits_per_character"]:10.3f}'
    return (
        f'{record["pieces"]:,} tokens, {record["words"]:,} words, '
        f'{record["characters"]:,} characters; {record["seq_len"]} tokens '
        f'at a time, {memory}\n'
        f'[UNK]: {record["unknown_pieces"]:,} of the tokens, '
        f'{record["unknown_words_of_the_text"]:,} of them written so in '
        'the text\n'
        f'perplexity per piece  {record["perplexity_per_piece"]:10.2f}\n'
        f'perplexity per word   {record["perplexity_per_word"]:10.2f}\n'
        f'bits per character    {bits}'
    )


if __name__ == '__main__':
    commands.start(run)
