"""Trains rows of the table: raw text in, a workdir out.

    python -m infoword_tf.train --flagfile=tasks/flags/quickstart.flags
    python -m infoword_tf.train --corpus='text:books/*.txt' \
        --objectives=bert_nce --size=mini --steps=20000 --workdir=runs/books

The same command resumes a run that was stopped (on a CPU bit for bit).
"""

import contextlib
import hashlib
import inspect
import io
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging

# The backend is chosen before Keras is imported; this program is TensorFlow's.
os.environ['KERAS_BACKEND'] = 'tensorflow'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

# ----------------------------------------------------------------------- flags

CORPUS = flags.DEFINE_string(
    'corpus', 'pydocs', 'pydocs, or text:GLOB (one sentence or paragraph a '
    'line, a blank line between documents, also .gz), or lines:GLOB (one text '
    'whose line ends count; with --heldout).')
HELDOUT = flags.DEFINE_string(
    'heldout', None, 'GLOB of held-out text; without it 1 document in 100.')
TOKENIZER = flags.DEFINE_enum(
    'tokenizer', None, ['wordpiece', 'sentencepiece'], 'How text becomes '
    'pieces; by default as --vocab is, else wordpiece.')
VOCAB = flags.DEFINE_string(
    'vocab', None, 'A vocab.txt, or a SentencePiece *.model; without it one '
    'is learned from the corpus.')
VOCAB_SIZE = flags.DEFINE_integer(
    'vocab_size', 8192, 'Pieces to learn.', lower_bound=1)
LOWER_CASE = flags.DEFINE_bool(
    'lower_case', True, 'Lower-case text; wordpiece strips accents too.')

OBJECTIVES = flags.DEFINE_string(
    'objectives', 'bert_nce', 'A named sum, or weighted rows: '
    'bert_nce:1,mlm:0.5.')
MASKING = flags.DEFINE_enum(
    'masking', None, ['spans', 'words', 'tokens'], 'What is hidden; by '
    'default what the rows want, else tokens.')
# Settings of rows, named alike; without the flag a row's own default counts.
DROP_HITS = flags.DEFINE_bool(
    'drop_hits', None, 'bert_nce: leave copies of the target out of the '
    'training loss.')
TRANSFORM = flags.DEFINE_bool(
    'transform', None, "mlm: BERT's transform and word bias over the states.")
CRITIC = flags.DEFINE_enum(
    'critic', None, ['dot', 'scaled', 'cosine'], 'dim: how two states are '
    'compared; scaled: over the root of the width.')
TEMPERATURE = flags.DEFINE_float(
    'temperature', None, 'dim: of --critic=cosine; 0.05 by default.',
    lower_bound=1e-6)
K = flags.DEFINE_integer(
    'k', None, 'plm: one in K tokens is predicted; 6 by default.',
    lower_bound=2)
ORDER = flags.DEFINE_enum(
    'order', None, ['partial', 'strict'], 'plm: whether what is not predicted '
    'sees each other, as in the official code, or what comes before it alone, '
    'as in the paper.')

SIZE = flags.DEFINE_string(
    'size', None, 'tiny, mini, small, medium, base or large; tiny by default.')
ENCODER = flags.DEFINE_string(
    'encoder', None, 'Another encoder, where the rows allow it.')
POSITIONS = flags.DEFINE_integer(
    'positions', 512, 'Positions of the encoder.', lower_bound=1)
DROPOUT = flags.DEFINE_float(
    'dropout', 0.1, 'Share dropped of states and attention weights.',
    lower_bound=0.0, upper_bound=0.99)
GELU = flags.DEFINE_enum(
    'gelu', 'tanh', ['tanh', 'erf'], "tanh: Google's BERT; erf: Hugging "
    "Face's.")
# Arguments of an encoder, named alike; without the flag its own default counts.
UNTIE = flags.DEFINE_bool(
    'untie', None, 'transformer_xl, plm: biases u and v of each layer, not of '
    'all layers together; true by default.')
CLAMP = flags.DEFINE_integer(
    'clamp', None, 'transformer_xl, plm: farther tokens are as far as this; '
    'without it no distance is cut.', lower_bound=1)
SAME_LENGTH = flags.DEFINE_bool(
    'same_length', None, 'transformer_xl: every token sees as many as the '
    'memory holds, the first of a step and the last; false by default.')
INIT = flags.DEFINE_string(
    'init', None, 'A workdir to start from: encoder, tokenizer, and the '
    'objectives of the same rows.')

STEPS = flags.DEFINE_integer('steps', 1000, 'Updates.', lower_bound=1)
BATCH_SIZE = flags.DEFINE_integer(
    'batch_size', 32, 'Sequences of the global batch.', lower_bound=1)
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', 128, 'Tokens of a sequence, with specials.', lower_bound=8)
MEMORY_LENGTH = flags.DEFINE_integer(
    'memory_length', None, 'Tokens of the steps before that an encoder with '
    'memory sees; --seq_len by default, 0: none.', lower_bound=0)
LEARNING_RATE = flags.DEFINE_float(
    'learning_rate', 1e-3, 'Highest learning rate.', lower_bound=0.0)
WARMUP_STEPS = flags.DEFINE_integer(
    'warmup_steps', None, 'Updates until it is reached; steps / 10 by '
    'default.', lower_bound=0)
WEIGHT_DECAY = flags.DEFINE_float(
    'weight_decay', 0.01, 'Decoupled decay, not of biases and norms.',
    lower_bound=0.0)
CLIP_NORM = flags.DEFINE_float(
    'clip_norm', 1.0, 'Largest global norm of the gradient; 0: no clip.',
    lower_bound=0.0)
SEED = flags.DEFINE_integer(
    'seed', 0, 'Of weights, text order, masks and dropout.', lower_bound=0)

WORKDIR = flags.DEFINE_string('workdir', None, 'Where the run lives.')
CHECKPOINT_EVERY = flags.DEFINE_integer(
    'checkpoint_every', None, 'Updates between checkpoints, rounded up to a '
    'logging step; steps / 10, at most 1000, by default.', lower_bound=1)
KEEP_CHECKPOINTS = flags.DEFINE_integer(
    'keep_checkpoints', 2, 'How many are kept.', lower_bound=1)
LOG_EVERY = flags.DEFINE_integer(
    'log_every', None, 'Updates between logging steps; steps / 50 by default.',
    lower_bound=1)
EVAL_EVERY = flags.DEFINE_integer(
    'eval_every', None, 'Updates between held-out values, rounded up to a '
    'logging step; steps / 10 by default.', lower_bound=1)

STRATEGY = flags.DEFINE_enum(
    'strategy', 'one', ['one', 'mirrored', 'multiworker', 'tpu'],
    'tf.distribute: one device, all of this machine, several machines, a TPU.')
LOGICAL_CPUS = flags.DEFINE_integer(
    'logical_cpus', 1, 'Splits the CPU into devices, to try --strategy='
    'mirrored on.', lower_bound=1)
PRECISION = flags.DEFINE_enum(
    'precision', 'auto', ['auto', 'float32', 'mixed_bfloat16'],
    'auto: bfloat16 where its matrix products are 1.5 times as fast.')
XLA = flags.DEFINE_bool(
    'xla', False, 'Compile forward and backward pass whole; for GPU and TPU.')


class UsageError(Exception):
    """Something that was asked for cannot be; the message says what to do."""


# ------------------------------------------------------------------- the pieces


def choose_rows() -> tuple[dict[str, Any], str, str]:
    """--objectives, --masking and --encoder, resolved against the table.

    Returns:
        config['rows']; the masking; the encoder's name.
    """
    from infoword_tf.encoders import ENCODERS
    from infoword_tf.objectives import TABLE, parse

    weights = {r: w for r, w in parse(OBJECTIVES.value).items() if w}
    settings = (DROP_HITS, TRANSFORM, CRITIC, TEMPERATURE, K, ORDER)
    given = {f.name: f.value for f in settings if f.value is not None}
    rows = {
        row: {
            'weight': weight,
            'settings': {
                name: given.get(name, default)
                for name, default in TABLE[row].settings.items()
            },
        }
        for row, weight in weights.items()
    }
    for name in given:
        if not any(name in row['settings'] for row in rows.values()):
            users = [r for r, e in TABLE.items() if name in e.settings]
            raise UsageError(
                f'--{name} is for {", ".join(users)}, not for '
                f'--objectives={OBJECTIVES.value}'
            )
    if 'temperature' in given and given.get('critic') != 'cosine':
        raise UsageError('--temperature is for --critic=cosine; give both')
    masking = MASKING.value
    for row in rows:
        wanted = TABLE[row].masking
        if wanted and masking not in (None, wanted):
            raise UsageError(
                f'--masking={masking}: {row} hides {wanted}; leave out '
                f'--masking, or {row}'
            )
        masking = wanted or masking
    if BATCH_SIZE.value < 2:
        for row in rows:
            if TABLE[row].heldout_candidates:
                raise UsageError(
                    f'--batch_size={BATCH_SIZE.value}: the candidates of '
                    f'{row} come from other sequences of the batch; take 2 '
                    'or more'
                )
    name = ENCODER.value
    for row in rows:
        allowed = TABLE[row].encoders
        if name is not None and name not in allowed:
            raise UsageError(
                f'--encoder={name}: {row} allows {", ".join(allowed)} '
                f'(there are {", ".join(ENCODERS)})'
            )
    if name is None:
        allowed = {row: TABLE[row].encoders for row in rows}
        shared = [
            encoder
            for encoder in allowed[next(iter(rows))]
            if all(encoder in others for others in allowed.values())
        ]
        if not shared:
            listed = (f'{r} allows {", ".join(a)}' for r, a in allowed.items())
            raise UsageError(
                f'--objectives={OBJECTIVES.value}: no encoder serves all rows '
                f'({"; ".join(listed)}); train them apart'
            )
        name = shared[0]
    return rows, masking or 'tokens', name


def choose_plan(rows: dict[str, Any], masking: str) -> Any:
    """How batches are made; a `plan.Plan`.

    Raises:
        UsageError: the rows want what does not go together.
    """
    from infoword_tf.plan import make_plan

    settings = {row: entry['settings'] for row, entry in rows.items()}
    try:
        return make_plan(settings, SEQ_LEN.value, masking)
    except ValueError as error:
        raise UsageError(
            f'--objectives={OBJECTIVES.value}: {error}'
        ) from None


def fixed_arguments(rows: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the encoder that the rows fix.

    Raises:
        UsageError: two of them fix one differently.
    """
    from infoword_tf.objectives import TABLE

    fixed: dict[str, Any] = {}
    for row in rows:
        for name, value in TABLE[row].arguments.items():
            if fixed.setdefault(name, value) != value:
                raise UsageError(
                    f'--objectives={OBJECTIVES.value}: {row} wants an encoder '
                    f'with {name} {value}, another row {fixed[name]}; train '
                    'them apart'
                )
    return fixed


def choose_memory(encoder: str) -> int | None:
    """config['memory_length']: None for an encoder that has no memory.

    Raises:
        UsageError: --memory_length for such an encoder.
    """
    from infoword_tf.model import has_memory

    if has_memory(encoder):
        if MEMORY_LENGTH.value is None:
            return SEQ_LEN.value
        return MEMORY_LENGTH.value
    if MEMORY_LENGTH.value is not None:
        raise UsageError(
            f'--memory_length={MEMORY_LENGTH.value}: the encoder {encoder} of '
            f'--objectives={OBJECTIVES.value} has no memory; leave it out'
        )
    return None


def compare_texts(rows: dict[str, Any]) -> dict[str, str]:
    """config's layout, and pooling and similarity of a row with vectors."""
    from infoword_tf.objectives import TABLE

    layout = TABLE[next(iter(rows))].layout  # the rows share an encoder
    for row, entry in reversed(TABLE.items()):
        if row in rows and entry.pooling:
            cosine = rows[row]['settings'].get('critic') == 'cosine'
            similarity = 'cosine' if cosine else entry.similarity
            pooling = entry.pooling
            break
    else:
        pooling, similarity = 'mean', 'cosine'
    return {'layout': layout, 'pooling': pooling, 'similarity': similarity}


def describe_encoder(
    name: str,
    started: Any,
    vocab_size: int,
    fixed: dict[str, Any] | None = None,
) -> dict:
    """config['encoder']: of --size, or of the workdir that --init names.

    With the arguments that the rows fix.
    """
    fixed = fixed or {}
    from infoword_tf.encoders import ENCODERS
    from infoword_tf.sizes import DEFAULT_SIZES, SIZES

    taken = inspect.signature(ENCODERS[name].__init__).parameters
    own = {
        flag.name: flag.value
        for flag in (UNTIE, CLAMP, SAME_LENGTH)
        if flag.value is not None
    }
    for flag in own:
        if flag not in taken:
            raise UsageError(
                f'--{flag}: the encoder {name} of --objectives='
                f'{OBJECTIVES.value} has none; leave it out'
            )
    if own.get('same_length') and not fixed.get('causal'):
        raise UsageError(
            '--same_length is for rows whose tokens see no later ones, not '
            f'for --objectives={OBJECTIVES.value}; leave it out'
        )
    fixed = {**fixed, **own}
    size = SIZE.value
    if size is not None and size not in SIZES:
        raise UsageError(f'--size={size}: known are {", ".join(SIZES)}')
    if started is not None:
        described = json.loads(json.dumps(started.config['encoder']))
        arguments = described['arguments']
        if size and any(
            arguments.get(k, v) != v for k, v in SIZES[size].items()
        ):
            raise UsageError(
                f'--size={size} is not the size of --init={INIT.value} '
                f'({arguments.get("layers", 0)} layers, {arguments["width"]} '
                'wide); leave out one of the two'
            )
        if described['name'] != name:
            raise UsageError(
                f'--init={INIT.value} holds the encoder '
                f'{described["name"]!r}, the rows want {name!r}'
            )
        for flag in (
            'positions',
            'gelu',
            'untie',
            'lower_case',
            'vocab_size',
            'tokenizer',
        ):
            if flags.FLAGS[flag].present:
                raise UsageError(
                    f'--{flag} is decided by --init={INIT.value}; leave it out'
                )
        arguments.update(fixed, rate=DROPOUT.value)
    else:
        arguments = {
            'vocab_size': vocab_size,
            **(SIZES[size] if size else DEFAULT_SIZES.get(name, SIZES['tiny'])),
            'max_length': POSITIONS.value,
            'rate': DROPOUT.value,
            'gelu': GELU.value,
            'activation': f'gelu_{GELU.value}',
            **fixed,
        }
        has_gelu = not {'gelu', 'activation'}.isdisjoint(taken)
        if flags.FLAGS[GELU.name].present and not has_gelu:
            raise UsageError(f'--gelu: the encoder {name} has none')
        arguments = {k: v for k, v in arguments.items() if k in taken}
        described = {'name': name, 'arguments': arguments}
    if SEQ_LEN.value > arguments['max_length']:
        raise UsageError(
            f'--seq_len={SEQ_LEN.value}: the encoder has '
            f'{arguments["max_length"]} positions; lower it'
            + ('' if started else ', or raise --positions')
        )
    return described


def choose_tokenizer() -> str:
    """--tokenizer, or what --vocab is; config['tokenizer']['kind']."""
    kind = TOKENIZER.value
    if not VOCAB.value:
        return kind or 'wordpiece'
    is_model = VOCAB.value.endswith('.model')
    found = 'sentencepiece' if is_model else 'wordpiece'
    if kind not in (None, found):
        raise UsageError(
            f'--tokenizer={kind}: --vocab={VOCAB.value} is for {found} (the '
            'names of SentencePiece models end in .model); leave out one of '
            'the two'
        )
    if is_model and flags.FLAGS['lower_case'].present:
        raise UsageError(
            f'--lower_case is decided by --vocab={VOCAB.value}; leave it out'
        )
    return found


def open_tokenizer(corpus: Any, cache: pathlib.Path) -> Any:
    """What --vocab names, or what was learned from the text."""
    from infoword_tf import files
    from infoword_tf.data import documents
    from infoword_tf.text.tokenizers import TOKENIZERS

    kind = TOKENIZERS[choose_tokenizer()]
    lower_case = LOWER_CASE.value
    if VOCAB.value:
        return kind.read(VOCAB.value, lower_case)
    key = f'{corpus.fingerprint}-{VOCAB_SIZE.value}-{lower_case}'
    suffix = pathlib.Path(kind.file).suffix
    learned = cache / 'vocabularies' / f'{_digest(key)}{suffix}'
    if learned.exists():
        return kind.read(learned, lower_case)
    began = time.monotonic()
    texts = (
        ' '.join(documents.parts(document.text)) for document in corpus.train()
    )
    tokenizer = kind.learn(texts, VOCAB_SIZE.value, lower_case)
    learned.parent.mkdir(parents=True, exist_ok=True)
    with files.written(learned) as partial:
        tokenizer.write(partial)
    print(
        f'learned {len(tokenizer):,} pieces in '
        f'{time.monotonic() - began:.0f} s',
        flush=True,
    )
    return tokenizer


def open_text(started: Any) -> tuple[Any, Any, Any, str]:
    """The tokenizer and the token stores of both parts of the corpus.

    Stores and learned vocabularies are kept in the cache, so that the next
    run on the same text opens them at once.

    Returns:
        tokenizer, training store, held-out store, a fingerprint of the text.
    """
    from infoword_tf.data import corpora, store

    cache = corpora.cache_dir()
    corpus = corpora.open_corpus(
        CORPUS.value, HELDOUT.value or None, cache
    )
    if started is not None:
        if VOCAB.value:
            raise UsageError('--init brings its vocabulary; leave out --vocab')
        tokenizer = started.tokenizer
    else:
        tokenizer = open_tokenizer(corpus, cache)
    key = '\n'.join(
        [corpus.fingerprint, str(tokenizer.lower_case), tokenizer.identity]
    )
    folder = cache / 'stores' / _digest(key)
    stores = {}
    for part, read in (
        ('train', corpus.train),
        ('heldout', corpus.heldout),
    ):
        if (folder / part).is_dir():
            stores[part] = store.open_store(folder / part)
            continue
        what = 'training' if part == 'train' else 'held-out'
        some = store.peek(
            read(),
            f'--corpus={CORPUS.value} has no {what} documents; give more '
            'text, or name held-out files with --heldout=GLOB',
        )
        stores[part] = store.write_store(folder / part, some, tokenizer)
    train, heldout = stores['train'], stores['heldout']
    print(
        f'{CORPUS.value}: {len(train.ids):,} tokens to train on, '
        f'{len(heldout.ids):,} held out, {len(tokenizer):,} pieces',
        flush=True,
    )
    return tokenizer, train, heldout, corpus.fingerprint


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def decide_precision(workdir: pathlib.Path) -> str:
    """--precision, with `auto` decided once for a workdir."""
    if PRECISION.value != 'auto':
        return PRECISION.value
    if (workdir / 'config.json').exists():
        return json.loads((workdir / 'config.json').read_text())['precision']
    from infoword_tf.training import precision

    return precision.faster()


def what_runs(
    config: dict[str, Any], masking: str, fingerprint: str, vocabulary: str
) -> dict[str, Any]:
    """What decides the weights of a run, by flag: compared on resume."""
    weights = {row: entry['weight'] for row, entry in config['rows'].items()}
    settings = {
        name: value
        for entry in config['rows'].values()
        for name, value in entry['settings'].items()
    }
    encoder = config['encoder']['arguments']
    sizes = [encoder.get(name, 0) for name in ('layers', 'width', 'heads')]
    return {
        'corpus': CORPUS.value,
        'heldout': HELDOUT.value,
        'corpus (its files, or packages that pydocs reads)': fingerprint,
        'vocab': f'{VOCAB.value or "learned"} (text {vocabulary})',
        'vocab_size': encoder['vocab_size'],
        'tokenizer': config['tokenizer']['kind'],
        'lower_case': config['tokenizer']['lower_case'],
        'objectives': weights,
        'masking': masking,
        **settings,
        'encoder': config['encoder']['name'],
        'size': 'x'.join(map(str, sizes)),
        'positions': encoder['max_length'],
        'dropout': encoder['rate'],
        'gelu': encoder.get('gelu', encoder.get('activation')),
        'untie': encoder.get('untie'),
        'clamp': encoder.get('clamp'),
        'same_length': encoder.get('same_length'),
        'init': INIT.value,
        'steps': STEPS.value,
        'batch_size': BATCH_SIZE.value,
        'seq_len': SEQ_LEN.value,
        'memory_length': config['memory_length'],
        'learning_rate': LEARNING_RATE.value,
        'warmup_steps': _warmup_steps(),
        'weight_decay': WEIGHT_DECAY.value,
        'clip_norm': CLIP_NORM.value,
        'seed': SEED.value,
        'precision': config['precision'],
        'xla': XLA.value,
    }


def _warmup_steps() -> int:
    if WARMUP_STEPS.value is None:
        return max(1, STEPS.value // 10)
    return WARMUP_STEPS.value


def agree(workdir: pathlib.Path, config: dict[str, Any], replicas: int) -> None:
    """Writes config.json and flags.txt, or checks them against the old ones.

    Raises:
        UsageError: the workdir is of a run with other flags.
    """
    from infoword_tf import files

    path = workdir / 'config.json'
    if path.exists() and list((workdir / 'checkpoints').glob('step-*')):
        old = json.loads(path.read_text())
        differ = [
            f'--{name} was {old["run"].get(name)}, is {value}'
            for name, value in config['run'].items()
            if old['run'].get(name) != value
        ]
        if differ:
            raise UsageError(
                f'{workdir} holds a run with other flags: {"; ".join(differ)}.'
                ' Give this run another --workdir, or the old flags'
            )
        if old['replicas'] != replicas:
            print(
                f'going on with {replicas} replicas instead of '
                f'{old["replicas"]}: dropout masks differ from here',
                flush=True,
            )
    files.write_json(path, config)
    with files.written(workdir / 'flags.txt') as partial:
        module = flags.FLAGS.find_module_defining_flag('objectives')
        own = flags.FLAGS.flags_by_module_dict()[module]
        lines = sorted(f.serialize() for f in own if f.present)
        partial.write_text('\n'.join(lines) + '\n')


def start_from(model: Any, started: Any) -> None:
    """Copies what --init has into a fresh model, and says what."""
    from infoword_tf import files

    old = {k: v.numpy() for k, v in started.model.variables.items()}
    new = model.variables
    taken = [path for path in new if path in old]
    files.assign(
        {path: new[path] for path in taken},
        {path: old[path] for path in taken},
        INIT.value,
    )

    def parts(paths: Sequence[str]) -> str:
        names = {'/'.join(p.split('/')[:2]) if p.startswith('objectives/')
                 else p.split('/')[0] for p in paths}
        return ', '.join(sorted(names)) or 'nothing'

    print(
        f'--init={INIT.value}: taken {parts(taken)} and the tokenizer; '
        f'fresh {parts([p for p in new if p not in old])}; '
        f'dropped {parts([p for p in old if p not in new])}',
        flush=True,
    )


# ---------------------------------------------------------------------- the run


def train() -> None:
    """The whole run, in order."""
    if WORKDIR.value is None:
        raise UsageError('--workdir is missing: name a folder for this run')
    workdir = pathlib.Path(WORKDIR.value)
    rows, masking, encoder_name = choose_rows()
    plan, fixed = choose_plan(rows, masking), fixed_arguments(rows)
    memory_length = choose_memory(encoder_name)

    # devices ------------------------------------------------------------------
    import tensorflow as tf

    from infoword_tf import files
    from infoword_tf.training import checkpoint, distribution

    strategy = distribution.make_strategy(STRATEGY.value, LOGICAL_CPUS.value)
    replicas = strategy.num_replicas_in_sync
    if BATCH_SIZE.value % replicas:
        raise UsageError(
            f'--batch_size={BATCH_SIZE.value} cannot be shared by {replicas} '
            f'replicas; take a multiple of {replicas}'
        )
    if XLA.value and LOGICAL_CPUS.value > 1:
        raise UsageError(
            '--xla cannot cross the devices of one CPU; leave out --xla or '
            '--logical_cpus'
        )

    if STRATEGY.value == 'multiworker' and PRECISION.value == 'auto':
        raise UsageError(
            '--precision=auto may decide differently on each worker; name it'
        )

    # Every worker holds the same weights: one of them writes.
    chief = distribution.is_chief(strategy)
    with files.locked(workdir) if chief else contextlib.nullcontext():
        # text -----------------------------------------------------------------
        from infoword_tf.data.batches import (
            Batches,
            heldout_views,
            open_sources,
        )
        from infoword_tf.inference.loaded import load
        from infoword_tf.model import CONFIG_VERSION, Model

        started = load(INIT.value) if INIT.value else None
        # Complains before the work.
        describe_encoder(encoder_name, started, 0, fixed)
        tokenizer, store, heldout_store, fingerprint = open_text(started)
        sources = open_sources(store, plan, BATCH_SIZE.value, SEED.value)
        for name, source in sources.items():
            if hasattr(source, 'single'):
                print(
                    f'{source.single:,} documents have one sentence and no '
                    f'part in {", ".join(plan.readers(name))}',
                    flush=True,
                )
        batches = Batches(sources, plan, tokenizer.specials, SEED.value)
        heldout = heldout_views(heldout_store, plan, tokenizer.specials)

        # config ---------------------------------------------------------------
        config: dict[str, Any] = {
            'version': CONFIG_VERSION,
            'encoder': describe_encoder(
                encoder_name, started, len(tokenizer), fixed
            ),
            'tokenizer': {
                'kind': tokenizer.kind,
                'lower_case': tokenizer.lower_case,
            },
            'rows': rows,
            'masking': masking,
            'memory_length': memory_length,
            'max_length': max(
                SEQ_LEN.value, started.config['max_length'] if started else 0
            ),
            **compare_texts(rows),
            'precision': decide_precision(workdir),
            'replicas': replicas,
        }
        pieces = _digest(tokenizer.identity)[:12]
        config['run'] = what_runs(config, masking, fingerprint, pieces)
        config = json.loads(json.dumps(config))
        if chief:
            agree(workdir, config, replicas)
            with files.written(workdir / tokenizer.file) as partial:
                tokenizer.write(partial)

        # model and optimizer --------------------------------------------------
        from infoword_tf.training import loop, optim

        with strategy.scope():
            model = Model(config, tokenizer.specials, SEED.value)
            optimizer = optim.AdamW(
                model.variables, WEIGHT_DECAY.value, CLIP_NORM.value
            )
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        if started is not None:
            start_from(model, started)
        state = {f'model/{k}': v.value for k, v in model.variables.items()}
        state |= {f'optimizer/{k}': v for k, v in optimizer.slots.items()}
        checkpoints = checkpoint.Checkpoints(
            workdir, KEEP_CHECKPOINTS.value, chief
        )
        memories = loop.Memories(model, strategy, BATCH_SIZE.value)
        first = checkpoints.restore(state, memories.parts())
        if first and memories.variables and not memories.parts():
            print(
                'memory starts empty: that of several machines is not saved',
                flush=True,
            )
        step.assign(first)
        size = sum(int(tf.size(v)) for v in optimizer.variables.values())
        print(
            f'{OBJECTIVES.value}: {size:,} weights, {config["precision"]}, '
            f'{replicas} replica{"s" if replicas > 1 else ""}, '
            f'{STEPS.value:,} steps of {BATCH_SIZE.value} x {SEQ_LEN.value} '
            'tokens',
            flush=True,
        )

        def save(now: int) -> None:
            """What a run resumes from, and what travels."""
            checkpoints.save(now, state | memories.parts())
            tensors = {k: v.numpy() for k, v in model.variables.items()}
            tensors['unigram'] = store.counts
            files.write_tensors(workdir / 'weights.safetensors', tensors)

        # loop -----------------------------------------------------------------
        fit(
            workdir,
            loop.Trainer(
                model,
                batches.dataset(first, max(STEPS.value, first + 1)),
                strategy,
                optimizer,
                step,
                lambda s: optim.schedule(
                    s, LEARNING_RATE.value, _warmup_steps(), STEPS.value
                ),
                model.kl(store.frequencies),
                SEED.value,
                BATCH_SIZE.value,
                XLA.value,
                memories,
            ),
            loop.Heldout(model, heldout, model.kl(heldout_store.frequencies)),
            save,
            chief,
        )


def fit(
    workdir: pathlib.Path,
    trainer: Any,
    heldout: Any,
    save: Callable[[int], None],
    chief: bool,
) -> None:
    """Runs Orbit's loop; at logging steps the chief writes, shows, saves."""
    import orbit

    from infoword_tf import files
    from infoword_tf.training import checkpoint, loop, report

    steps, first = STEPS.value, int(trainer.step)
    rows = list(trainer.model.objectives)
    log_every = LOG_EVERY.value or min(100, max(1, steps // 50))

    def rounded(every: int) -> int:
        return -(-every // log_every) * log_every

    eval_every = rounded(EVAL_EVERY.value or max(1, steps // 10))
    save_every = rounded(
        CHECKPOINT_EVERY.value or min(1000, max(1, steps // 10))
    )
    metrics = checkpoint.Metrics(workdir, first, chief)
    seconds = metrics.records[-1]['seconds'] if metrics.records else 0.0
    clock = loop.Clock(first, seconds)
    tokens = BATCH_SIZE.value * SEQ_LEN.value

    def act(values: dict[str, Any]) -> None:
        if not chief:
            return
        now = int(trainer.step)
        elapsed, rate = clock.lap(now)
        # Orbit writes `values` to TensorBoard afterwards.
        values['learning_rate'] = float(trainer.learning_rate(now - 1))
        if now % eval_every == 0 or now == steps:
            values.update(heldout.evaluate())
        record = {
            'step': now,
            'seconds': round(elapsed, 2),
            'tokens_per_second': round(rate * tokens, 1),
            **values,
        }
        metrics.append(record)
        left = (steps - now) / rate
        shown.write(report.progress_line(record, rows, steps, left) + '\n')
        shown.flush()
        if now % save_every == 0 or now == steps:
            save(now)
        clock.skip()

    controller = orbit.Controller(
        strategy=trainer.strategy,
        trainer=trainer,
        global_step=trainer.step,
        steps_per_loop=lambda s: int(min(log_every - s % log_every, steps - s)),
        summary_dir=str(workdir / 'tensorboard') if chief else None,
        train_actions=[act],
    )
    # Orbit prints lines of its own, with less in them than ours.
    shown = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()):
        controller.train(steps, checkpoint_at_completion=False)
    if not chief:
        return
    last = dict(metrics.records[-1]) if metrics.records else {'step': first}
    if f'heldout/{rows[0]}/loss' not in last:
        last.update(heldout.evaluate())
    files.write_json(workdir / 'metrics.json', last)
    report.draw_bounds(workdir / 'bounds.png', metrics.records, rows)
    print(report.closing_table(last, rows))
    print(f'{workdir}/ holds the encoder, metrics.jsonl and bounds.png')


def main(argv: Sequence[str]) -> None:
    """Runs, and turns what a user can mend into one sentence."""
    logging.set_verbosity(logging.WARNING)
    try:
        if len(argv) > 1:
            raise UsageError(f'{argv[1]!r} is no flag; flags begin with --')
        train()
    except (UsageError, ValueError, OSError, RuntimeError) as error:
        if os.environ.get('INFOWORD_TRACEBACK'):
            raise
        print(f'error: {error}', file=sys.stderr, flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        print(
            '\nstopped; the same command goes on from the last checkpoint',
            file=sys.stderr,
            flush=True,
        )
        sys.exit(130)


if __name__ == '__main__':
    app.run(main)
