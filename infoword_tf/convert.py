r"""Public weights to a workdir, and a workdir to a folder for other libraries.

    python -m infoword_tf.convert --source=MiniLM --workdir=runs/minilm
    python -m infoword_tf.convert --init=runs/minilm --output=out/minilm \
        --format=sentence_transformers

`--source` is a folder of transformers, sentence-transformers, PEFT or KerasHub
(a preset), or one with a TensorFlow checkpoint of BERT or XLNet (Google's, or
the Model Garden's). `hf://OWNER/NAME[@REVISION]` is a repository of the Hugging
Face Hub, which is downloaded into its cache. Every name and every shape is
checked: weights that nothing here uses are reported, and no weight silently
keeps its initial value.
"""

import dataclasses
import functools
import json
import math
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ['KERAS_BACKEND'] = 'tensorflow'

from infoword_tf import commands, errors, files, hub
from infoword_tf.choices import flag
from infoword_tf.folders import NOTE, adapted_by

FORMATS = ('huggingface', 'sentence_transformers', 'peft', 'keras_hub')


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    source: str | None = flag(
        None, 'A folder with weights, or hf://OWNER/NAME[@REVISION].')
    workdir: str | None = flag(None, 'The workdir to make of --source.')
    prompts: str | None = flag(
        None, 'Prompts for a --source that has none: JSON such as '
        '\'{"query": "query: ", "passage": "passage: "}\'.')
    pooling: str | None = flag(
        None, 'Pooling for a --source that does not name one; mean by default.',
        choices=('cls', 'last', 'mean', 'max', 'by_position'))
    init: str | None = flag(None, 'The workdir to write as --output.')
    output: str | None = flag(None, 'The folder to make of --init.')
    format: str = flag(
        FORMATS[0], 'The library that is to load --output.', choices=FORMATS)


@commands.takes(Choices)
def run(choices: Choices, chosen: Mapping[str, Any]) -> None:
    """Runs the command; UsageError: flags that do not go together."""
    if bool(choices.source) == bool(choices.init):
        raise errors.UsageError(
            'source_or_init',
            'give --source and --workdir to bring weights in, or --init and '
            '--output to write them out',
        )
    if choices.source:
        [name] = commands.require(vars(choices), workdir='the workdir to make')
        workdir = pathlib.Path(name)
        check_workdir(workdir)  # before a download
        source = choices.source
        convert(
            hub.folder_of(source) if files.is_of_hub(source)
            else pathlib.Path(source),
            workdir,
            choices.pooling,
            _prompts(choices.prompts),
        )  # fmt: skip
    elif choices.init:
        [name] = commands.require(vars(choices), output='the folder to write')
        write(pathlib.Path(choices.init), pathlib.Path(name), choices.format)


def _prompts(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    try:
        prompts = json.loads(text)
    except ValueError:
        prompts = None
    if not isinstance(prompts, dict) or not all(
        isinstance(value, str) for value in prompts.values()
    ):
        raise errors.UsageError(
            'bad_prompts',
            f'--prompts={text} is no JSON object of strings, such as '
            '\'{"query": "query: "}\'',
        )
    return prompts


def convert(
    source: pathlib.Path,
    workdir: pathlib.Path,
    pooling: str | None = None,
    prompts: dict[str, str] | None = None,
) -> None:
    """Makes a workdir of a folder with weights.

    Args:
        pooling: pooling of a folder that does not name one.
        prompts: replace those of the folder.

    Raises:
        FileNotFoundError: no such folder, or a missing file.
        FileExistsError: the workdir holds files.
        ValueError: a folder that cannot be converted, or is damaged.
    """
    check_workdir(workdir)
    base = base_of(source)
    began = time.monotonic()
    commands.hush_tensorflow()
    from infoword_tf.weights import (
        converted,
        google,
        huggingface,
        keras_hub,
        peft,
        sentence_transformers,
    )
    from infoword_tf.workdir import Workdir

    vectors, encoder, says = converted.VectorSettings(), base, None
    for folder in dict.fromkeys((base, source)):  # the last one counts
        if sentence_transformers.is_one(folder):
            place, vectors = sentence_transformers.read(folder)
            encoder = place if folder == base else encoder
            says = folder
    if says and pooling and pooling != vectors.pooling:
        raise errors.UsageError(
            'other_pooling',
            f'--pooling={pooling}, but {says} says {vectors.pooling}; '
            'leave it out',
        )
    if pooling:
        vectors = dataclasses.replace(vectors, pooling=pooling)
    if prompts is not None:
        vectors = dataclasses.replace(vectors, prompts=prompts, prompt=None)
    if list(encoder.glob('*.index')) and not (
        encoder / huggingface.CONFIG
    ).is_file():
        public = google.read(encoder)
    elif keras_hub.is_one(encoder):
        public = keras_hub.read(encoder)
    elif base != source:
        public = peft.read(encoder, source)
    else:
        public = huggingface.read(encoder)
    public = converted.marked(public, vectors.markers)
    config, model, dropped = converted.make(public, vectors)
    tokenizer = public.tokenizer.tokenizer
    Workdir(model, tokenizer, config).write(workdir)
    numbers = sum(math.prod(w.shape) for w in model.exported.values())
    rows = ', '.join(config.rows) or 'none'
    print(
        f'{workdir}/: encoder {config.encoder.name}, '
        f'{config.encoder.arguments["layers"]} layers, '
        f'{config.encoder.arguments["width"]} wide; rows {rows}; '
        f'critic {config.critic}; {config.tokenizer.kind}, '
        f'{len(tokenizer):,} tokens; texts of up to {config.max_length} '
        f'tokens; {numbers / 1e6:.1f} M weights, '
        f'{time.monotonic() - began:.0f} s'
    )
    if dropped:
        print(f'{NOTE}not converted, nothing here uses it: '
              f'{"; ".join(dropped)}')
    for note in public.tokenizer.notes:
        print(f'{NOTE}{note}')


def check_workdir(workdir: pathlib.Path) -> None:
    """Raises FileExistsError if a folder that is to be made holds files."""
    if workdir.exists() and (not workdir.is_dir() or any(workdir.iterdir())):
        raise FileExistsError(
            f'--workdir={workdir} is there and not empty; name a new folder'
        )


def base_of(source: pathlib.Path) -> pathlib.Path:
    """Returns the folder with the weights: that of an adapter, or the source.

    Raises:
        FileNotFoundError: there is no such folder, or it holds no weights.
        InputError: as `folders.adapted_by`.
    """
    if not source.is_dir():
        raise FileNotFoundError(f'--source={source}: there is no such folder')
    base = adapted_by(source) or source
    known = [base / name for name in ('config.json', 'modules.json')]
    if not any(map(pathlib.Path.is_file, [*known, *base.glob('*.index')])):
        raise FileNotFoundError(
            f'--source={base} has no config.json, modules.json or *.index: '
            'it holds no weights; name the folder with these files'
        )
    return base


def write(init: pathlib.Path, output: pathlib.Path, form: str) -> None:
    """Writes a workdir as a folder in one of FORMATS, whole or not at all.

    Raises:
        FileNotFoundError: `init` is no workdir.
        FileExistsError: `output` is there.
        ValueError: a workdir that the format cannot hold.
    """
    if output.exists():
        raise FileExistsError(f'--output={output} is there; name a new folder')
    import infoword_tf

    loaded = infoword_tf.load(init)

    from infoword_tf.weights import (
        huggingface,
        keras_hub,
        peft,
        sentence_transformers,
    )

    writers: dict[str, Callable[[pathlib.Path, Any], Sequence[str]]] = {
        'huggingface': huggingface.write,
        'sentence_transformers': sentence_transformers.write,
        'peft': functools.partial(peft.write, workdir=init),
        'keras_hub': keras_hub.write,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f'.{output.name}.{os.getpid()}')
    partial.mkdir()
    try:
        dropped = writers[form](partial, loaded)
        os.rename(partial, output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f'{output}/: for {form.replace("_", "-")}')
    if dropped:
        print(f'not written, {form.replace("_", "-")} has no place for it: '
              f'{"; ".join(dropped)}')


if __name__ == '__main__':
    # There are no products here, and oneDNN's allocator keeps memory.
    os.environ['TF_ENABLE_ONEDNN_OPTS'] = '0'
    commands.start(run)
