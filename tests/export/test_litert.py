"""export.litert: its file beside the workdir, its tokenizer beside ours."""

import contextlib
import dataclasses
import functools
import io
import itertools
import json
import pathlib
import runpy
import shutil
import subprocess
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from tensorflow.lite.python import convert_phase
from tensorflow.lite.tools import flatbuffer_utils

import infoword_tf
from export import comparison, litert
from export.serving import model as standalone
from infoword_tf.config import Config
from infoword_tf.data import labelling
from infoword_tf.evaluation import measures, sts
from infoword_tf.text import normalization, template
from infoword_tf.text.wordpiece import WordPieceTokenizer
from tests import places
from tests.eager import eagerly
from tests.export import finetuned, workdirs
from tests.tasks import command

# Beside those of `comparison`: what normalisation can get wrong.
HARD = (
    'ｈａｌｆ ｗｉｄｔｈ ﾊﾝｶｸ カタカナ 漢字かな交じり文',
    'a\u00a0b\u3000c\u2028d\x85e\x1cf\tg\u200bh\u00adi\ufeffj\x00k\x7fl',
    'İstanbul ΣΑΣ ὈΔΥΣΣΕΎΣ ǅ ﬁ ½ ª º ℃ Ⅷ K Å',
    'e\u0301a\u0308\u0323 \u0904 नमस्ते กำลัง 한국어 \u1100\u1161 የኢትዮጵያ',
    "don't [MASK] (e-mail: a@b.c) $5.00 +x=y~`^| «q» — … “z” ¿no?",
    '😀👩\u200d🚀👍🏽🇩🇪❤\ufe0f1\ufe0f\u20e3 \U0001f9ff',
    'private \ue000 \U000f0000 and new \U0001fae8',
    '\U00020000\U0002a700\U0002b740\U00030000 \U000e0041 \U0001d400 𐐀',
    'x' * 100 + ' ' + 'x' * 101 + ' ' + 'é' * 100 + ' ' + 'é' * 101,
    'ab' * 60,
    '  \n ',
    '## ##ing [UNK] [CLS]',
)


def setUpModule():
    global FOLDER
    FOLDER = places.make()


def short():
    """Inside, no text has 1 MB, for which tokenizers of Python take long."""
    return mock.patch.object(comparison, 'NASTY', comparison.NASTY[:-2])


@short()
def texts(count=60):
    """Real ones and nasty ones; what is no UTF-8 is no str."""
    actual = list(HARD)
    for text in comparison.texts(count):
        with contextlib.suppress(UnicodeDecodeError):
            actual.append(text.decode())
    return actual


def near(actual, expected, atol=1e-5):
    np.testing.assert_allclose(actual, expected, atol=atol)


def make(name, workdir, **more):
    with short():
        return litert.write(workdir, FOLDER / name, **more)


@functools.cache
def workdir_of(precision):
    """The shared one, or one of layers wide enough to be written in int8."""
    if precision == 'float32':
        return workdirs.shared()
    folder = FOLDER / 'wide'
    return folder if folder.exists() else workdirs.write(folder, width=128)


@functools.cache
def vectors(precision):
    """Returns what litert says of vectors, and what it writes."""
    return make(
        f'vectors_{precision}', workdir_of(precision), precision=precision,
        sts=str(people_say()), seq_len=24,  # as long as texts may be
    )  # fmt: skip


@functools.cache
def converted():
    """Returns what the command says of classes, and what it writes."""
    return command.succeeded(command.run(
        litert, f'--init={finetuned.workdir("classes")}',
        f'--output={FOLDER / "said"}', f'--dev={finetuned.data()[1]}',
        '--text=first', '--label=kind',
    ))  # fmt: skip


def operations(name):
    """By operation of a file, the types of its second inputs."""
    model = flatbuffer_utils.read_model(str(FOLDER / name / 'model.tflite'))
    builtin, types = (
        {number: name for name, number in vars(kind).items()}
        for kind in (flatbuffer_utils.schema_fb.BuiltinOperator,
                     flatbuffer_utils.schema_fb.TensorType)
    )  # fmt: skip
    actual = {}
    for graph in model.subgraphs:
        for operation in graph.operators:
            code = model.operatorCodes[operation.opcodeIndex]
            kinds = actual.setdefault(builtin[code.builtinCode], set())
            for tensor in operation.inputs[1:2]:
                kinds.add(types[graph.tensors[tensor].type])
    return actual


def people_say():
    random = np.random.default_rng(0)
    lines = []
    for number in range(12):
        a, b = (
            ' '.join(random.choice(list('abcdxyz'), random.integers(1, 9)))
            for _ in range(2)
        )
        lines.append(f'g\tf\ty\tn\t{number % 6}\t{a}\t{b}\n')
    path = FOLDER / 'sts.csv'
    path.write_text(''.join(lines))
    return path


def printed(name, texts):
    """Returns the lines that model.py of a folder prints as a command."""
    copy = runpy.run_path(str(FOLDER / name / 'model.py'))
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        copy['main'](texts)
    return [json.loads(line) for line in shown.getvalue().splitlines()]


class TokenizerTest(parameterized.TestCase):
    @parameterized.product(
        lower_case=(True, False),
        options=({}, {'strip_accents': False}, {'chinese_characters': False},
                 {'clean': False}),
    )  # fmt: skip
    def test_ids_of_a_wordpiece_vocabulary(self, lower_case, options):
        learned = workdirs.tokenizer_of('wordpiece').vocabulary
        more = {
            token
            for text in HARD
            for character in text
            for token in (character, f'##{character}')
            if character.strip() and character != '\0'
        }
        vocabulary = [*learned, *sorted(more - set(learned))]
        tokenizer = WordPieceTokenizer(vocabulary, lower_case, **options)
        litert.write_tokenizer(FOLDER, tokenizer)
        ours = standalone.read_tokenizer(FOLDER)
        content = [*texts(), *(['many short words ' * 60_000] * (not options))]
        expected = tokenizer.tokenize(tf.constant(content)).to_list()
        for text, ids in zip(content, expected, strict=True):
            self.assertEqual(ours.ids(text), ids, text[:80])

    def test_added_tokens_by_hand(self):
        """The longest at each place, blanks beside it, and words alone."""
        names = 'id', 'lstrip', 'rstrip', 'single_word'
        added = standalone._Added({
            text: dict(zip(names, values, strict=True))
            for text, *values in (('[A]', 7, True, False, False),
                                  ('[AB]', 8, False, True, False),
                                  ('it', 9, False, False, True))
        })  # fmt: skip
        for text, expected in (
            ('x [A]y[AB]  it with_it it',
             ['x', 7, 'y', 8, '', 9, ' with_it ', 9, '']),
            ('it', ['', 9, '']), ('its', ['its']),
        ):  # fmt: skip
            self.assertEqual(added.split(text), expected)

    def test_every_character_alone(self):
        """The file has all that the table says, and nothing else."""
        litert.write_tokenizer(FOLDER, workdirs.tokenizer_of('wordpiece'))
        characters = json.loads((FOLDER / 'characters.json').read_text('utf-8'))
        actual = standalone._Characters(characters)
        table = normalization.spaced_forms(normalization.Normalization())
        codes = set(range(0x20000))
        for first, last, _ in characters['runs']:
            codes.update((first - 1, first, last, last + 1))
        for code in codes & set(range(sys.maxunicode + 1)):
            form = table.get(chr(code), chr(code))
            if actual[code] != form:
                self.assertEqual(actual[code], form, hex(code))

    def test_how_two_texts_are_cut(self):
        for room in (0, 1, 5, 8):
            sizes = np.array([*itertools.product(range(12), range(12))])
            expected = template.fitting_lengths(
                *map(tf.constant, sizes.T), room
            )
            for (first, second), *stays in zip(sizes, *expected, strict=True):
                actual = standalone._fitting_lengths(first, second, room)
                self.assertEqual(actual, tuple(map(int, stays)), (actual, room))


class VectorsTest(parameterized.TestCase):
    @parameterized.parameters(*litert.PRECISIONS[::-1])  # float32 first
    def test_vectors(self, precision):
        name = f'vectors_{precision}'
        people = people_say()
        actual = vectors(precision)
        loaded = workdirs.load(workdir_of(precision))
        model = standalone.Model(FOLDER / name)
        with eagerly():
            expected = loaded.encode(texts(), progress=False)
        gap = np.abs(model.encode(texts()) - expected).max()
        self.assertLess(gap, {'float32': 1e-5}.get(precision, 0.1))
        self.assertEqual(actual['lengths'], [16, 24])
        self.assertEqual(model.encode([]).shape, (0, expected.shape[1]))
        embed = actual['signatures']['embed']
        self.assertGreater(embed['cosine'], 0.98)
        for call, arguments, error, message in (
            (model.classify, (['a'],), ValueError, 'model has embed, no cl'),
            (model.encode, ('text',), TypeError, 'this is one string'),
            (model.encode, (['a'], 'query'), ValueError,
             "prompt 'query': .* has none"),
        ):  # fmt: skip
            with self.assertRaisesRegex(error, message):
                call(*arguments)
        answers = printed(name, ['a b c', 'x'])
        self.assertEqual([[*answer] for answer in answers],
                         [['embedding'], ['embedding']])
        near([answer['embedding'] for answer in answers],
             model.encode(['a b c', 'x']), 1e-6)
        # By the similarity of the workdir, as `tasks.sts` measures it.
        pairs = sts.read(people)
        for key, encode in (
            ('float32', functools.partial(loaded.encode, progress=False)),
            (precision, model.encode),
        ):
            cosine, dot = (
                sts.correlation(pairs, encode, similarity)
                for similarity in ('cosine', 'dot')
            )
            self.assertNotAlmostEqual(cosine, dot)
            self.assertAlmostEqual(actual['sts'][key], cosine)

    def test_operations(self):
        """Dense layers multiply in int8; nothing needs TensorFlow."""
        sizes = {x: vectors(x)['bytes'] for x in ('int8', 'float32')}
        actual = operations('vectors_int8')
        self.assertNotIn('CUSTOM', actual)
        self.assertEqual(actual['FULLY_CONNECTED'], {'INT8'})
        actual = operations('vectors_float32')
        self.assertEqual(actual['FULLY_CONNECTED'], {'FLOAT32'})
        # Both lengths have one set of weights.
        for precision, share in (('int8', 0.4), ('float32', 1.2)):
            loaded = workdirs.load(workdir_of(precision))
            weights = loaded.model.variables.values()
            whole = 4 * sum(int(np.prod(w.shape)) for w in weights)
            self.assertLess(sizes[precision], share * whole)

    def test_prompts_and_a_shorter_text(self):
        workdir = workdirs.write(
            FOLDER / 'prompted', ('ict',), 'lookup', 'weighted'
        )
        config = Config.read(workdir).replace(
            prompts={'query': 'a question: ', 'passage': 'b '}, prompt='query'
        )
        config.write(workdir)
        make('prompted_made', workdir, seq_len=20, precision='float32')
        loaded = infoword_tf.load(workdir)
        model = standalone.Model(FOLDER / 'prompted_made')
        strings = ['one two', 'three']
        for prompt in (None, '', 'passage'):
            near(model.encode(strings, prompt),
                 loaded.encode(strings, progress=False, prompt=prompt))
        self.assertEqual(model.lengths, [16, 20])
        config.replace(max_length=20).write(workdir)
        long = ['word ' * 50]
        near(model.encode(long),
             infoword_tf.load(workdir).encode(long, progress=False))

    def test_words(self):
        """A pooling that counts pieces, and a norm with a large epsilon."""
        workdir = workdirs.write(
            FOLDER / 'words', ('ict',), pooling='words',
            settings={'ict.words': 40},
        )  # fmt: skip
        config = Config.read(workdir)
        more = {'epsilon': 0.5, 'activation': 'gelu_erf'}
        encoder = dataclasses.replace(
            config.encoder, arguments={**config.encoder.arguments, **more}
        )
        config.replace(encoder=encoder).write(workdir)
        make('words_made', workdir, precision='float32')
        near(standalone.Model(FOLDER / 'words_made').encode(texts()),
             infoword_tf.load(workdir).encode(texts(), progress=False))
        self.assertIn('GELU', operations('words_made'))


class PrintedTest(parameterized.TestCase):
    @parameterized.parameters(
        ('embed', 'encode', [[1.0, 2.0]], (), {'embedding': [1.0, 2.0]}),
        ('classify', 'classify', [[0.25, 0.75]], ('y', 'x'),
         {'y': 0.25, 'x': 0.75}),
        ('classify', 'classify', [[0.25, 0.75]], (), {'0': 0.25, '1': 0.75}),
        ('regress', 'rate', [3.5], (), {'score': 3.5}),
    )
    def test_a_line_for_each_text(self, name, method, answer, labels, expected):
        model = mock.Mock(signatures={name}, labels=labels)
        getattr(model, method).side_effect = lambda texts: np.array(answer)
        with (
            mock.patch.object(standalone, 'Model', return_value=model),
            contextlib.redirect_stdout(io.StringIO()) as shown,
        ):
            standalone.main(['a', 'b'])
        lines = shown.getvalue().splitlines()
        self.assertEqual([json.loads(x) for x in lines], [expected] * 2)


class FineTunedTest(parameterized.TestCase):
    @parameterized.parameters('pairs', 'several')
    def test_beside_the_workdir(self, kind):
        workdir = finetuned.workdir(kind)
        actual = make(kind, workdir, precision='float32')
        loaded = finetuned.loaded(kind)
        model = standalone.Model(FOLDER / kind)
        strings = ['a b c', 'x', '', 'y z ' * 30, 'd a']
        sides, call, name = {
            'pairs': ([strings, strings[::-1]], 'classify', 'classify_pairs'),
            'several': ([strings], 'classify', 'classify'),
        }[kind]
        with eagerly():
            expected = getattr(loaded, call)(*sides)
        near(getattr(model, call)(*sides), expected, 2e-5)
        self.assertEqual(tuple(model.labels), loaded.config.labels)
        self.assertEqual(set(actual['signatures']), {name})
        if kind == 'pairs':
            with self.assertRaisesRegex(SystemExit, 'reads two texts'):
                printed(kind, strings)
        else:
            with eagerly():
                near(model.scores(*sides), loaded.scores(*sides), 2e-5)
            self.assertEqual(actual['signatures'][name]['same_labels'], 1)
            rows = labelling.TableExamples(
                strings, None, None, None, 'dev.tsv', np.arange(5),
                label_sets=[{'x'}, {'x'}, set(), {'y', 'z'}, {'z'}],
            )  # fmt: skip
            true = labelling.known_labels(rows, 'xyz')
            expected = measures.f1_macro(expected > 0.5, true)
            scores = litert.scored(model, rows, loaded.config)
            self.assertAlmostEqual(scores['f1_macro'], expected, places=6)

    def test_the_command_and_what_it_costs(self):
        (_, dev), done = finetuned.data(), converted()
        self.assertIn('/: classify; int8, ', done.out)
        card = (FOLDER / 'said/MODEL_CARD.md').read_text()
        self.assertIn('* Labels: `bad`, `fair`, `good`.', card)
        loaded = finetuned.loaded('classes')
        lines = [line.split('\t') for line in dev.read_text().splitlines()[1:]]
        right = [line[3] for line in lines]
        with eagerly():
            scores = loaded.classify([line[0] for line in lines])
        likeliest = scores.argmax(axis=1)
        score = np.mean(np.array(loaded.config.labels)[likeliest] == right)
        self.assertIn(f'({score:.4f} in float32)', card)
        self.assertIn('(12 examples): accuracy', card)

    def test_what_the_card_compares(self):
        """The likeliest class, and labels as GLUE's files write them."""
        loaded = finetuned.loaded('classes')
        few = [b'a b c', b'x', b'\xff']
        with (
            mock.patch.object(comparison, 'texts', lambda count: few),
            mock.patch.object(standalone, 'Model') as faked,
        ):
            for shift, same in ((0, 1.0), (1, 0.0)):
                faked.return_value.classify = lambda texts, shift=shift: (
                    np.roll(loaded.classify(texts), shift, axis=1)
                )
                actual = litert.compared(FOLDER, loaded)
                self.assertEqual(actual['texts'], 2)
                self.assertEqual(actual['signatures']['classify']['same'], same)

        says = mock.Mock()
        says.classify.return_value = np.array(
            [[0.2, 0.8], [0.9, 0.1], [0.7, 0.3]]
        )
        task = dataclasses.replace(
            loaded.config.task, name='sst-2', metrics=('accuracy',)
        )
        glue = loaded.config.replace(task=task, labels=('negative', 'positive'))
        rows = labelling.TableExamples(
            ['a', 'b', 'c'], None, ['1', '0', '1'], None, 'dev.tsv',
            np.arange(3),
        )  # fmt: skip
        actual = litert.scored(says, rows, glue)
        self.assertAlmostEqual(actual['accuracy'], 2 / 3)
        # A task that counts otherwise.
        task = dataclasses.replace(task, metrics=('right_first',))
        actual = litert.scored(says, rows, glue.replace(task=task))
        self.assertEqual([*actual], ['accuracy'])

    def test_alone(self):
        """A moved folder, in a process that has not this project."""
        converted()
        moved = FOLDER / 'moved'
        shutil.copytree(FOLDER / 'said', moved)
        done = subprocess.run(
            [sys.executable, '-I', moved / 'model.py', 'a b c', 'x'],
            cwd=FOLDER, capture_output=True, text=True, check=True,
        )  # fmt: skip
        actual = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([[*x] for x in actual], [['bad', 'fair', 'good']] * 2)
        near([[*answer.values()] for answer in actual],
             standalone.Model(moved).classify(['a b c', 'x']), 1e-6)


class ComplaintsTest(command.Checks, absltest.TestCase):
    def refuse(self, says, *flags, workdir=None, **changes):
        workdir = workdir or workdirs.shared()
        if changes:
            config = Config.read(workdir).replace(**changes)
            workdir = pathlib.Path(self.create_tempdir())
            config.write(workdir)
        done = command.run(
            litert, f'--init={workdir}', f'--output={FOLDER}/never', *flags
        )
        self.assert_complains(done, says)
        self.assertFalse((FOLDER / 'never').exists())

    def test_complaints(self):
        config = Config.read(workdirs.shared())
        classes = finetuned.workdir('classes')
        label = Config.read(classes).rows['label']
        lstm = dataclasses.replace(
            label, settings={**label.settings, 'bilstm': True}
        )
        (FOLDER / 'there').mkdir()
        for says, flags, changes in (
            ('there is there already', [f'--output={FOLDER}/there'], {}),
            ('has a relative encoder, and LiteRT gets transformer or lookup',
             [], {'encoder': dataclasses.replace(
                 config.encoder, name='relative')}),
            ('a tokenizer of the kind words, .* goes wordpiece',
             [], {'tokenizer': dataclasses.replace(
                 config.tokenizer, kind='words')}),
            ('compares by the critic late, and a file',
             [], {'critics': {'late': None}}),
            ('was taught the row label of choices, which gives',
             [], {'workdir': finetuned.workdir('choices')}),
            (r'pools with LSTMs \(--label.bilstm\)',
             [], {'rows': {'label': lstm}}),
            ('--seq_len=40: this model reads 24', ['--seq_len=40'], {}),
            ('--dev is of labelled texts', ['--dev=a.tsv'], {}),
            ('--sts is of vectors', ['--sts=sts.tsv'], {'workdir': classes}),
        ):  # fmt: skip
            self.refuse(says, *flags, **changes)

    def test_what_cannot_be_converted(self):
        failed = convert_phase.ConverterError('here: error: no Erfc\nnote: x')
        with mock.patch.object(
            tf.lite.TFLiteConverter, 'from_saved_model'
        ) as faked:
            faked.return_value.convert.side_effect = failed
            self.refuse('LiteRT lacks what this model computes: no Erfc$')
        self.assertEmpty(list(FOLDER.glob('.never*')))

    def test_a_folder_without_a_model(self):
        with self.assertRaisesRegex(FileNotFoundError, 'has no model.json'):
            standalone.Model(FOLDER)
