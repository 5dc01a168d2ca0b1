"""Faults of a folder: each is one sentence, and nothing is written."""

import warnings
import zipfile

import numpy as np
from absl.testing import parameterized

from infoword_tf import convert, files
from infoword_tf.weights import huggingface
from infoword_tf.weights.tensors import open_folder
from tests import places
from tests.refused import refused
from tests.weights import folders

NAME = 'encoder.layer.1.output.dense.weight'


def pieces(folder, count):
    """A vocab.txt of so many lines."""
    names = [*folders.vocabulary(), *(f'z{i}' for i in range(count))][:count]
    (folder / 'vocab.txt').write_text('\n'.join(names))


def tensors(folder, changed):
    """The weights, changed by a function."""
    actual = folders.state('bert')
    changed(actual)
    folders.save(folder / 'model.safetensors', actual)


def flip(folder, byte, value=0xFF):
    """One byte of the weights becomes another."""
    path = folder / 'model.safetensors'
    content = bytearray(path.read_bytes())
    content[byte] = value
    path.write_bytes(content)


def exponent(folder):
    """One bit of one number is another: its exponent is all ones."""

    def changed(actual):
        array = np.full((16, 24), 1.5, np.float32)
        array.view(np.uint32)[3, 4] |= 0x7F800000
        actual[NAME] = array

    tensors(folder, changed)


def shards(folder):
    """Parts the weights, and loses a part."""
    actual = folders.state('bert')
    (folder / 'model.safetensors').unlink()
    names = sorted(actual)
    places = {}
    for number, part in enumerate((names[:9], names[9:])):
        shard = f'model-{number + 1:05}-of-00002.safetensors'
        folders.save(folder / shard, {n: actual[n] for n in part})
        places |= dict.fromkeys(part, shard)
    files.write_json(
        folder / 'model.safetensors.index.json', {'weight_map': places}
    )
    return folder / shard


def pickled(folder, **parts):
    """Weights as PyTorch pickles them; `parts` of the file are others."""
    (folder / 'model.safetensors').unlink()
    path = folder / 'pytorch_model.bin'
    folders.write_pickled(path, folders.state('bert'))
    with warnings.catch_warnings(), zipfile.ZipFile(path, 'a') as archive:
        warnings.simplefilter('ignore')  # these names are there
        for name, content in parts.items():
            archive.writestr(name.replace('_', '/', 1), content)


def config(**values):
    """Returns what changes config.json."""
    return lambda folder: folders.change(folder / 'config.json', **values)


def text(name, content):
    """Returns what writes a file."""
    return lambda folder: (folder / name).write_text(content)


def gone(name):
    """Returns what removes a file."""
    return lambda folder: (folder / name).unlink()


def weights(changed):
    """Returns what changes the weights."""
    return lambda folder: tensors(folder, changed)


# Pickles that would run a command, or take numbers for addresses.
OBJECTS = b'\x80\x02(U\x01xU\x06objectU\x010tQ.'
SYSTEM = b'\x80\x02cposix\nsystem\n(U\x04truetR.'
# By name what makes the fault, and the id and values of the complaint; of the
# operating system's errors, and of other folders of the project, a pattern.
FAULTS = {
    'no_type': (config(model_type=None), 'no_model_type', 'bert, camembert'),
    'other_type': (config(model_type='t5'), 'unknown_model_type', "'t5'",
                   'known are albert, '),
    'no_key': (config(hidden_size=None), 'config_lacks_key', 'hidden_size'),
    'activation': (config(hidden_act='mish'), 'unknown_public_activation',
                   "'mish'", 'gelu'),
    'own_code': (config(model_type='jamba', auto_map={}), 'unknown_model_type',
                 "'jamba'", '(auto_map)'),
    'no_position': (config(model_type='roberta', pad_token_id=19),
                    'no_position_left', 'pad_token_id, 19'),
    'no_padding': (
        text('config.json', '{"model_type": "roberta", "pad_token_id": null, '
             '"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, '
             '"num_attention_heads": 2, "intermediate_size": 24}'),
        'no_padding_id', 'pad_token_id None',
    ),
    'no_config': (gone('config.json'), OSError, 'has no config.json'),
    'no_json': (text('config.json', '{'), ValueError, 'config.json is no JSON'),
    'no_weights': (gone('model.safetensors'), OSError,
                   'has no model.safetensors: it holds no weights; fetch'),
    'pickled_long_ago': (
        lambda f: (f / 'model.safetensors').rename(f / 'pytorch_model.bin'),
        'pickled_weights', '(pytorch_model.bin)', 'not a zip', 'save_pretrained'
    ),
    'pickled_code': (
        lambda f: pickled(f, **{'any_data.pkl': SYSTEM}), 'pickled_weights',
        'it names posix.system',
    ),
    'pickled_objects': (
        lambda f: pickled(f, **{'any_data.pkl': OBJECTS}), 'pickled_weights',
        'numbers of object',
    ),
    'pickled_number': (
        lambda f: pickled(f, **{'any_data.pkl': b'\x80\x02}U\x01aK\x01s.'}),
        'pickled_weights', 'it holds more than tensors',
    ),
    'pickled_order': (
        lambda f: pickled(f, any_byteorder=b'big'), 'pickled_weights',
        'its numbers are big-endian',
    ),
    'moved_shard': (
        lambda f: folders.change(
            shards(f).with_name('model.safetensors.index.json'),
            weight_map={NAME: 'model-00001-of-00002.safetensors'},
        ),
        'shard_lacks_weight', f'00001-of-00002.safetensors lacks {NAME}',
    ),
    'pickled_cut': (
        lambda f: pickled(f, **{'any_data/0': b'1234'}),
        'pickled_numbers_damaged', 'pytorch_model.bin',
    ),
    'cut': (
        lambda f: (f / 'model.safetensors').write_bytes(
            (f / 'model.safetensors').read_bytes()[:-100]
        ),
        'public_weights_damaged', 'model.safetensors',
    ),
    'flipped_header': (lambda f: flip(f, 20), 'public_weights_damaged'),
    'flipped_number': (exponent, 'public_weights_not_finite', NAME),
    'lost_shard': (
        lambda f: shards(f).unlink(), OSError,
        'names the shard model-00002-of-00002.safetensors, which is not there',
    ),
    'missing': (weights(lambda t: t.pop(NAME)), 'public_weights_lacking', NAME),
    'unexpected': (weights(lambda t: t.update(more=t[NAME])),
                   'unknown_public_weights', 'has more, '),
    'shape': (weights(lambda t: t.update({NAME: t[NAME][:, :-1]})),
              'public_weight_shape', NAME, '(16, 23) in the file',
              'asks for (16, 24)'),
    'fewer_layers': (config(num_hidden_layers=1), 'unknown_public_weights',
                     'encoder.layer.1'),
    'other_encoder': (
        weights(lambda t: t.clear() or t.update(a=np.ones(2, 'f4'))),
        'other_encoder_weights',
    ),
    'longer_vocabulary': (lambda f: pieces(f, 63),
                          'more_tokens_than_embeddings', 63, 60),
    'no_specials': (text('vocab.txt', 'a\nb\n'), ValueError,
                    'vocabulary lacks'),
    'no_tokenizer': (gone('vocab.txt'), OSError, 'has no tokenizer: none of'),
}  # fmt: skip


# Of ModernBERT, as transformers 5 writes its config.json.
_EVERY = ['full_attention', 'sliding_attention']
_YARN = {'full_attention': {'rope_type': 'yarn', 'rope_theta': 1e5}}
MODERN_FAULTS = {
    'layers': (
        config(layer_types=['full_attention', *_EVERY, 'full_attention']),
        'unknown_layer_types', 'full_attention, full_attention, sliding_',
    ),
    'rope': (config(rope_parameters=_YARN), 'unknown_rope', "'yarn'"),
    'partial_rope': (
        config(rope_parameters={'full_attention': {
            'rope_type': 'default', 'partial_rotary_factor': 0.5}}),
        'unknown_rope', 'partial_rotary_factor',
    ),
}  # fmt: skip


# Of encoders with rotary positions: the case, and as above.
ROTARY_FAULTS = {
    'yarn': ('qwen3', config(rope_scaling={'type': 'yarn', 'factor': 4.0}),
             'unknown_rope', "'yarn'", 'factor, rope_theta, type'),
    'dynamic': ('llama', config(rope_parameters={'rope_type': 'dynamic',
                                                 'factor': 4.0}),
                'unknown_rope', "'dynamic'"),
    'part': ('llama', config(partial_rotary_factor=0.5), 'unknown_rope',
             'partial_rotary_factor'),
    'mixed': ('gte', config(rope_scaling={'type': 'ntk', 'factor': 2.0,
                                          'mixed_b': 0.5}),
              'unknown_rope', 'mixed_b'),
    'near_sight': (
        'qwen3', config(layer_types=['full_attention', 'sliding_attention']),
        'unknown_layer_types', 'full_attention, sliding_attention',
    ),
    'order': ('gemma', config(layer_types=[_EVERY[0], *_EVERY, _EVERY[0]]),
              'unknown_layer_types'),
    'mask': ('qwen2', config(auto_map={}), 'mask_by_own_code', 'is_causal'),
}  # fmt: skip


class ComplaintsTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(
        *(('bert', *fault) for fault in FAULTS.values()),
        *(('modern', *fault) for fault in MODERN_FAULTS.values()),
        *ROTARY_FAULTS.values(),
    )
    def test_a_fault_is_said(self, case, make, id, *values):
        source = folders.write(self.folder / 'source', case)
        make(source)
        raises = refused if isinstance(id, str) else self.assertRaisesRegex
        with raises(id, *values):
            convert.convert(source, self.folder / 'workdir')
        self.assertFalse((self.folder / 'workdir').exists())

    def test_a_copy_that_differs_is_no_copy(self):
        """The decoder of masked words is the table of pieces, or refused."""
        source = folders.write(self.folder / 'source', 'bert_tanh')
        name = 'cls.predictions.decoder.weight'

        def copied(factor):
            actual = folders.state('bert_tanh')
            table = actual['bert.embeddings.word_embeddings.weight']
            actual[name] = factor * table
            folders.save(source / 'model.safetensors', actual)

        copied(np.float32(1.001))
        with refused('untied_copy', name):
            convert.convert(source, self.folder / 'workdir')
        copied(1)
        convert.convert(source, self.folder / 'workdir')

    def test_shards_are_one_file(self):
        source = folders.write(self.folder / 'source', 'bert')
        convert.convert(source, self.folder / 'whole')
        shards(source)
        convert.convert(source, self.folder / 'parts')
        (source / 'model.safetensors.index.json').unlink()
        (source / 'model.safetensors').touch()
        pickled(source)
        convert.convert(source, self.folder / 'pickled')
        whole, *others = (
            (self.folder / name / 'weights.safetensors').read_bytes()
            for name in ('whole', 'parts', 'pickled')
        )
        self.assertEqual([whole, whole], others)

    def test_one_file_goes_before_shards(self):
        """Shards beside it are older: transformers does not read them."""
        source = folders.write(self.folder / 'source', 'bert')
        new = (source / 'model.safetensors').read_bytes()
        shards(source)
        tensors(source, lambda held: held.update({NAME: 2 * held[NAME]}))
        held, old = open_folder(source), folders.state('bert')[NAME]
        np.testing.assert_array_equal(held[NAME], 2 * old)
        (source / 'model.safetensors').write_bytes(new)
        for shard in source.glob('model-*'):
            shard.unlink()
        convert.convert(source, self.folder / 'workdir')
        # config.json may name the file that counts.
        for name in ('model.safetensors', 'other.safetensors'):
            (source / name).write_bytes(new)
        tensors(source, lambda held: held.update({NAME: 2 * held[NAME]}))
        folders.change(source / 'config.json', transformers_weights=name)
        held = huggingface.read(source).tensors
        np.testing.assert_array_equal(held[NAME], old)
        (source / name).unlink()
        with self.assertRaisesRegex(FileNotFoundError, f'has no {name}'):
            huggingface.read(source)

    def test_what_is_there_stays(self):
        source = folders.write(self.folder / 'source', 'bert')
        with self.assertRaisesRegex(FileNotFoundError, 'no such folder'):
            convert.convert(self.folder / 'nothing', self.folder / 'workdir')
        with self.assertRaisesRegex(FileExistsError, 'name a new folder'):
            convert.convert(source, source)
        (self.folder / 'workdir').mkdir()  # empty
        convert.convert(source, self.folder / 'workdir')
        with self.assertRaisesRegex(FileExistsError, 'name a new folder'):
            convert.write(self.folder / 'workdir', source, 'huggingface')

    def test_old_names_of_norms(self):
        source = folders.write(self.folder / 'source', 'bert')
        convert.convert(source, self.folder / 'new')

        def rename(actual):
            for name in list(actual):
                if 'LayerNorm' in name:
                    old = name.replace('.weight', '.gamma')
                    actual[old.replace('.bias', '.beta')] = actual.pop(name)

        tensors(source, rename)
        convert.convert(source, self.folder / 'old')
        self.assertEqual(*(
            (self.folder / name / 'weights.safetensors').read_bytes()
            for name in ('new', 'old')
        ))  # fmt: skip
