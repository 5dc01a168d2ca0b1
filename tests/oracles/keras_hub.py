"""Tiny random presets of KerasHub, and what its models answer.

    python -m tests.oracles.keras_hub [--write]   in an environment of its own
    python -m tests.oracles.keras_hub --folders=DIR   loads what we have written

keras_hub.npz has, by class: the bytes of a folder of each task, ids of texts,
states and scores.
"""

import io
import os
import pathlib
import tempfile

os.environ['KERAS_BACKEND'] = 'tensorflow'
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ['CUDA_VISIBLE_DEVICES'] = '-1'

import numpy as np

from tests.oracles import frozen

FILE = pathlib.Path(__file__).with_suffix('.npz')
TEXTS = ('the quick brown fox jumps over the lazy dog',
         'Caf\u00e9, Strasse and ABC!',
         "it's  42 dogs; \u4e2d\u6587 ok")  # fmt: skip
LENGTH = 24
_SIZES = {'num_layers': 2, 'num_heads': 2, 'hidden_dim': 8,
          'intermediate_dim': 12, 'max_sequence_length': 48}  # fmt: skip
# By name: class in KerasHub, tokenizer, more arguments.
CASES = {
    'bert': ('Bert', 'words', {}),
    'roberta': ('Roberta', 'bytes', {}),
    'xlm_roberta': ('XLMRoberta', 'unigram', {}),
    'distil_bert': ('DistilBert', 'words', {}),
    'albert': ('Albert', 'unigram', {'embedding_dim': 6}),
    'electra': ('Electra', 'words', {'embedding_dim': 6}),
    'electra_wide': ('Electra', 'words', {'embedding_dim': 8}),
    'deberta_v3': ('DebertaV3', 'unigram', {'bucket_size': 4}),
}
_LETTERS = 'abcdefghijklmnopqrstuvwxyz'


def _words(lower_case: bool) -> dict:
    pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *_LETTERS,
              *(f'##{x}' for x in _LETTERS), *'ABC,.!;\'4', '##2', '##B', '##C',
              '\u4e2d', 'the', 'fox', '##ick', 'qu', 'dog']  # fmt: skip
    return {'vocabulary': pieces, 'lowercase': lower_case}


def _bytes() -> dict:
    from keras_hub.src.tokenizers.byte_pair_tokenizer import bytes_to_unicode

    pieces = ['<s>', '<pad>', '</s>', '<unk>',
              *bytes_to_unicode()[1]]  # fmt: skip
    merges = ['t h', 'th e', '\u0120 the', 'q u', 'o x', '\u0120 f',
              '\u0120f ox']  # fmt: skip
    pieces += [x.replace(' ', '') for x in merges] + ['<mask>']
    index = {x: i for i, x in enumerate(pieces)}
    return {'vocabulary': index, 'merges': merges}


def _unigram(name: str) -> dict:
    import sentencepiece

    specials = {
        'albert': {'pad_id': 0, 'unk_id': 1, 'bos_id': 2, 'eos_id': 3,
                   'pad_piece': '<pad>', 'unk_piece': '<unk>',
                   'bos_piece': '[CLS]', 'eos_piece': '[SEP]',
                   'control_symbols': '[MASK]'},
        'deberta_v3': {'pad_id': 0, 'bos_id': 1, 'eos_id': 2, 'unk_id': 3,
                       'pad_piece': '[PAD]', 'bos_piece': '[CLS]',
                       'eos_piece': '[SEP]', 'unk_piece': '[UNK]'},
        'xlm_roberta': {'unk_id': 0, 'bos_id': 1, 'eos_id': 2},
    }[name]  # fmt: skip
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXTS, *TEXTS, 'the fox and the dog']),
        model_writer=file, vocab_size=50, hard_vocab_limit=False,
        model_type='unigram', normalization_rule_name='identity',
        minloglevel=2, **specials,
    )  # fmt: skip
    return {'proto': file.getvalue()}


def build(name: str):
    """Returns a backbone with random weights, and its tokenizer."""
    import keras
    import keras_hub

    class_name, kind, more = CASES[name]
    settings = {
        'words': lambda: _words(name != 'distil_bert'),
        'bytes': _bytes,
        'unigram': lambda: _unigram(name),
    }[kind]()
    models = keras_hub.models
    tokenizer = getattr(models, f'{class_name}Tokenizer')(**settings)
    size = 'vocab_size' if class_name == 'Electra' else 'vocabulary_size'
    sizes = {**_SIZES, size: tokenizer.vocabulary_size(), **more}
    keras.utils.set_random_seed(7)
    backbone = getattr(models, f'{class_name}Backbone')(**sizes)
    return backbone, tokenizer


def shake(model) -> None:
    """Adds noise to all weights, so that biases and norms count."""
    generator = np.random.default_rng(len(model.weights))
    for weight in model.weights:
        if weight.dtype.startswith('float'):
            noise = generator.normal(size=weight.shape, scale=0.1)
            weight.assign(weight.numpy() + noise.astype(np.float32))


def tasks(name: str, backbone, tokenizer):
    """Yields a name and a model: the backbone, and a task of each kind."""
    import keras_hub

    yield 'backbone', backbone
    class_name = CASES[name][0]
    for task, arguments in (('TextClassifier', {'num_classes': 3}),
                            ('MaskedLM', {})):  # fmt: skip
        known = getattr(keras_hub.models, f'{class_name}{task}', None)
        if known is None:
            continue
        kind = getattr(keras_hub.models, f'{class_name}{task}Preprocessor')
        prepare = kind(tokenizer, sequence_length=LENGTH)
        yield task, known(backbone=backbone, preprocessor=prepare, **arguments)


def inputs_of(backbone, ids) -> dict:
    """Returns the inputs of a backbone for one text's ids."""
    row = np.asarray(ids, np.int32)[None]
    known = {
        'token_ids': row, 'padding_mask': np.ones_like(row),
        'segment_ids': np.zeros_like(row),
    }  # fmt: skip
    names = [x.name.split(':')[0] for x in backbone.inputs]
    return {name: known[name] for name in names}


def answers(task: str, model, ids) -> np.ndarray:
    """Returns states, or scores, of one text's ids."""
    if task == 'backbone':
        out = model(inputs_of(model, ids))
        out = out['sequence_output'] if isinstance(out, dict) else out
    else:
        known = inputs_of(model.backbone, ids)
        if task == 'MaskedLM':
            known['mask_positions'] = np.arange(len(ids), dtype=np.int32)[None]
        out = model(known)
    return np.asarray(out)[0]


def record() -> dict[str, np.ndarray]:
    """Returns bytes of folders, ids and answers, by CASE/TASK/NAME."""
    answered: dict[str, np.ndarray] = {}
    for name in CASES:
        backbone, tokenizer = build(name)
        shake(backbone)
        for task, model in tasks(name, backbone, tokenizer):
            for layer in model.layers if task != 'backbone' else ():
                if layer is not backbone:
                    shake(layer)
            with tempfile.TemporaryDirectory() as place:
                model.save_to_preset(place)
                if task == 'backbone':
                    tokenizer.save_to_preset(place)
                for path in sorted(pathlib.Path(place).rglob('*')):
                    if path.is_file():
                        within = path.relative_to(place).as_posix()
                        data = np.frombuffer(path.read_bytes(), np.uint8)
                        answered[f'{name}/{task}/file/{within}'] = data
            begin = getattr(tokenizer, 'start_token_id', None)
            end = getattr(tokenizer, 'end_token_id', None)
            for i, text in enumerate(TEXTS):
                inner = np.asarray(tokenizer(text)).tolist()
                ids = [begin, *inner, end][: _SIZES['max_sequence_length']]
                answered[f'{name}/{task}/ids/{i}'] = np.asarray(ids, np.int32)
                answer = answers(task, model, ids)
                answered[f'{name}/{task}/answer/{i}'] = answer
    return answered


def unpacked(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Writes the files of CASE/TASK; returns the folder."""
    start = f'{name}/file/'
    for key, content in frozen.read(FILE).items():
        if key.startswith(start):
            path = folder / key.removeprefix(start)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.tobytes())
    return folder


def load(folders: pathlib.Path) -> float:
    """Loads presets, a folder a case: the largest difference of states."""
    import keras_hub

    known, gaps = frozen.read(FILE), []
    for name in CASES:
        backbone = keras_hub.models.Backbone.from_preset(str(folders / name))
        tokenizer = keras_hub.models.Tokenizer.from_preset(str(folders / name))
        for i, text in enumerate(TEXTS):
            ids = known[f'{name}/backbone/ids/{i}']
            np.testing.assert_array_equal(tokenizer(text), ids[1:-1])
            states = {'answer': answers('backbone', backbone, ids)}
            expected = {'answer': known[f'{name}/backbone/answer/{i}']}
            gaps.append(frozen.compare(states, expected, 1e-5))
    return max(gaps)


if __name__ == '__main__':
    frozen.main('keras_hub', record, load, near=1e-5, asked='/file/')
