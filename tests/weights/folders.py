"""Folders such as other people make, of tiny models, for tests."""

import functools
import json
import pathlib
import pickle
import zipfile
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

from infoword_tf import files
from tests.oracles import frozen, huggingface

FROZEN = frozen.FOLDER / 'huggingface.npz'
SPECIALS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
LETTERS = 'abcdefghijklmnopqrstuvwxyz'
V = huggingface.V
WIDTH = 16
SETTINGS = 'config_sentence_transformers.json'


@functools.cache
def _frozen() -> dict[str, np.ndarray]:
    arrays = frozen.read(FROZEN)
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


def answers(case: str) -> dict[str, np.ndarray]:
    """Returns what transformers said of a case, by part."""
    return {
        name.partition('/')[2]: array
        for name, array in _frozen().items()
        if name.startswith(f'{case}/')
    }


def state(case: str) -> dict[str, np.ndarray]:
    """Its weights, by the names of transformers."""
    whose = frozen.from_bytes(answers(case)['weights'])
    return {
        name: huggingface.weight(drawn, tuple(shape))
        for name, (drawn, shape) in whose.items()
    }


def vocabulary() -> list[str]:
    """V pieces: specials, letters, letters that go on with a word."""
    pieces = [*SPECIALS, *LETTERS, *(f'##{c}' for c in LETTERS)]
    return [*pieces, '.', ',', '!'][:V]


def unigram() -> dict[str, Any]:
    """A tokenizer.json of XLM-R's kind, V pieces."""
    pieces = [('<s>', 0.0), ('<pad>', 0.0), ('</s>', 0.0), ('<unk>', 0.0)]
    pieces += [(f'\u2581{c}', -2.0 - i / 50) for i, c in enumerate(LETTERS)]
    pieces += [(c, -3.0 - i / 50) for i, c in enumerate(LETTERS)]
    pieces += [('.', -4.0), (',', -4.1), ('\u2581', -4.2)]
    pieces = [*pieces[: V - 1], ('<mask>', 0.0)]
    public = tokenizers.Tokenizer(models.Unigram(pieces, 3, False))
    public.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    public.add_special_tokens([pieces[i][0] for i in (0, 1, 2, 3, V - 1)])
    return json.loads(public.to_str())


def characters() -> tuple[list[str], list[str]]:
    """V pieces of GPT's kind, and merges."""
    merges = ['t h', 'th e</w>', 'a n', 'an d</w>', 'i n', 'in g</w>',
              'o r</w>']  # fmt: skip
    names = ['<unk>', *LETTERS, *(f'{c}</w>' for c in LETTERS)]
    return [*names, *(m.replace(' ', '') for m in merges)], merges


def byte_pairs(*specials: str) -> tuple[list[str], list[str]]:
    """300 pieces of bytes, of GPT-2's kind or, with specials, RoBERTa's."""
    others = (chr(256 + i) for i in range(256))
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    single = [chr(b) if b in prints else next(others) for b in range(256)]
    merges = [f'\u0120 {c}' for c in LETTERS]
    merges += ['h e', 'i n', 'in g', '\u0120t he', 'r e', 'a d', 're ad']
    merges += ['\u0120f i', '\u0120fi l', '\u0120fil e', 'o n', 'e r', 'o r',
               'a t', 'e n', 'i s', 'o f']  # fmt: skip
    merges = merges[: huggingface.BYTES - 256 - max(1, len(specials))]
    merged = [merge.replace(' ', '') for merge in merges]
    if not specials:
        return [*single, *merged, '<|endoftext|>'], merges
    return [*specials[:-1], *single, *merged, specials[-1]], merges


def write_pickled(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes float32 arrays as `torch.save` does."""

    def plain(value: Any) -> bytes:
        return pickle.dumps(value, 2)[2:-1]

    content = b'\x80\x02}('
    with zipfile.ZipFile(path, 'w') as archive:
        for number, (name, array) in enumerate(tensors.items()):
            archive.writestr(f'any/data/{number}', array.tobytes())
            strides = tuple(x // array.itemsize for x in array.strides)
            parts = map(plain, (0, array.shape, strides, False, {}))
            content += b''.join(
                [
                    plain(name), b'ctorch._utils\n_rebuild_tensor_v2\n((',
                    plain('storage'), b'ctorch\nFloatStorage\n',
                    plain(str(number)), plain('cpu'), plain(array.size), b'tQ',
                    *parts, b'tR',
                ]
            )  # fmt: skip
        archive.writestr('any/data.pkl', content + b'u.')


PAIRS = {
    'openai-gpt': characters,
    'gpt2': byte_pairs,
    'roberta': lambda: byte_pairs('<s>', '<pad>', '</s>', '<unk>', '<mask>'),
    'modernbert': lambda: byte_pairs(*SPECIALS),
    **dict.fromkeys(
        ('eurobert', 'llama', 'mistral', 'qwen2', 'qwen3', 'gemma3_text'),
        lambda: byte_pairs(*SPECIALS),
    ),
}


def save(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes weights as transformers does."""
    files.write_tensors(path, tensors, {'format': 'pt'})


def write(
    folder: pathlib.Path,
    case: str,
    tensors: dict[str, np.ndarray] | None = None,
    **config: Any,
) -> pathlib.Path:
    """A folder of transformers.

    Args:
        folder: to make.
        case: whose config.json, weights and kind of tokenizer.
        tensors: other weights.
        **config: other values.
    """
    folder.mkdir(parents=True)
    name, values = huggingface.CASES[case]
    values = {**values, 'architectures': [name], **config}
    files.write_json(folder / 'config.json', values)
    save(folder / 'model.safetensors', tensors or state(case))
    kind = values['model_type']
    if kind in PAIRS:
        names, merges = PAIRS[kind]()
        index = {piece: i for i, piece in enumerate(names)}
        files.write_json(folder / 'vocab.json', index)
        text = '\n'.join(['#version: 0.2', *merges, ''])
        (folder / 'merges.txt').write_text(text)
    elif kind in ('xlm-roberta', 'xlnet', 'mpnet'):
        described = unigram()
        if kind == 'xlnet':
            names = {'<s>': '<cls>', '</s>': '<sep>'}
            for entry in described['added_tokens']:
                content = entry['content']
                entry['content'] = names.get(content, content)
            model = described['model']
            model['vocab'] = [(names.get(x, x), y) for x, y in model['vocab']]
        files.write_json(folder / 'tokenizer.json', described)
    else:
        (folder / 'vocab.txt').write_text('\n'.join(vocabulary()) + '\n')
    if kind == 'albert':  # whose class gives no segments unless asked to
        inputs = {'model_input_names': ['input_ids', 'token_type_ids']}
        files.write_json(folder / 'tokenizer_config.json', inputs)
    return folder


def change(path: pathlib.Path, **values: Any) -> None:
    """Sets values of a JSON file, maybe a new one; None takes a key away."""
    path.parent.mkdir(exist_ok=True)
    before = files.read_json(path) if path.is_file() else {}
    after = {k: x for k, x in (before | values).items() if x is not None}
    files.write_json(path, after)


# What lies beside an encoder in a folder of sentence-transformers.


def modules(folder, *kinds, settings=None, types=None):
    """Writes modules.json; of each kind its folder, or the encoder's own."""
    types = types or {}
    listed = [
        {'idx': i, 'name': str(i), 'path': f'{i}_{kind}' if i else '',
         'type': types.get(kind, f'sentence_transformers.models.{kind}')}
        for i, kind in enumerate(kinds)
    ]  # fmt: skip
    files.write_json(folder / 'modules.json', listed)
    if settings is not None:
        files.write_json(folder / SETTINGS, settings)


def pooling(folder, number=1, **values):
    """Writes the module Pooling."""
    path = folder / f'{number}_Pooling' / 'config.json'
    change(path, word_embedding_dimension=WIDTH, **values)


def dense(folder, number, wide, bias=True, width=WIDTH, name='activation.Tanh'):
    """Writes a module Dense; returns its weights."""
    random, place = np.random.default_rng(number), folder / f'{number}_Dense'
    change(
        place / 'config.json', in_features=width, out_features=wide, bias=bias,
        activation_function=f'torch.nn.modules.{name}',
    )  # fmt: skip
    arrays = {'linear.weight': random.normal(size=(wide, width)).astype('f4')}
    if bias:
        arrays['linear.bias'] = random.normal(size=wide).astype('f4')
    save(place / 'model.safetensors', arrays)
    return arrays
