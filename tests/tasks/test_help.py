"""Pages that --help prints of every command, as `test_typed` runs them."""

import functools
import importlib
import re
from xml.etree import ElementTree

from absl import flags
from absl.testing import absltest

import infoword_tf
from infoword_tf.commands import define
from infoword_tf.encoders import FLAGS
from infoword_tf.objectives import setting_flags
from tests import places
from tests.tasks.test_typed import ROOT, answers, commands

TRAIN = 'infoword_tf.train'
FIRST = ['corpus', 'objectives', 'init', 'size', 'seq_len', 'batch_size',
         'steps', 'learning_rate', 'precision', 'seed', 'workdir']  # fmt: skip
# By what is typed, rows whose settings are shown.
ROWS = {
    '--help': (),
    '--objectives=simcse --help': ('simcse',),
    '--help --objectives=simcse,diffcse': ('simcse', 'diffcse'),
    '--help --objectives=plm': ('plm',),
    '--helpshort --objectives=mlm:1,dim:0.5': ('mlm', 'dim'),
    '-? --objectives=infoword': ('bert_nce', 'dim'),
    '--help --objectives=berta,mlm': ('mlm',),
    '--help --objectives=mlm --stepps=3': ('mlm',),
    '--help --flagfile={}/a.flags': ('gpt',),
}
# By the sum, flags of the encoder that the run has, but for `positions`.
ENCODED = {
    '--objectives=bert': ['activation', 'embedding_width',
                          'relative_buckets', 'shared_layers'],
    '--objectives=transformer_xl':
        ['activation', 'clamp', 'same_length', 'untie'],
    '--objectives=cbow': ['width'],
    '--objectives=mlm': [
        'activation', 'global_every', 'global_theta', 'kv_heads',
        'local_theta', 'local_window', 'norm', 'norms', 'qk_norm',
    ],
}  # fmt: skip
ORDERED = f'{TRAIN} --help', 'tasks.classify --help', 'export.savedmodel --help'
NAMED = [f'{TRAIN} --help={name}'
         for name in ('optimizer', 'plm', 'words', 'batch_size', 'more')]
UNKNOWN = {
    'tasks.glue --help=berta':
        '^error: --help=berta: .* are .*task, .*device$',
    f'{TRAIN} --stepps=3':
        "^FATAL Flags parsing error: Unknown command line flag 'stepps'",
}  # fmt: skip
XML, SQUAD = 'tasks.sts --helpxml', 'tasks.squad --help=epochs'


@functools.cache
def printed():
    """Status, output and errors by line of all that is typed here, at once."""
    folder = places.make()
    (folder / 'a.flags').write_text('--objectives=gpt:1\n--size=mini\n')
    lines = [
        *(f'{TRAIN} {x}' for x in ROWS),
        *(f'{TRAIN} --help {x}' for x in ENCODED),
        *(f'{module} --helpfull' for module in commands()),
        *ORDERED, *NAMED, *UNKNOWN, XML, SQUAD,
    ]  # fmt: skip
    typed = [line.format(folder).split() for line in lines]
    return dict(zip(lines, answers(typed, ROOT), strict=True))


def shown(text):
    """Names of the flags that stand first in a line, and in lists of them."""
    lists = re.findall(r'^(?:  |  \w+ +| {13})--.*', text, re.M)
    return re.findall(r'(?<=--)(?:\[no\])?([\w.]+)', ' '.join(lists))


def defined(module):
    """Names of the flags of a command that takes choices."""
    if module == TRAIN:
        run = infoword_tf.train
    else:
        run = importlib.import_module(module).run
    values = flags.FlagValues()
    define(run.choices, values)
    return list(values)


class HelpTest(absltest.TestCase):
    def pages(self, *typed):
        """Returns what was printed for each line that was typed."""
        actual = [printed()[line] for line in typed]
        for line, (status, _, err) in zip(typed, actual, strict=True):
            self.assertEqual((status, err), (0, ''), line)
        return [out for _, out, _ in actual]

    def test_the_first_screen(self):
        modules = list(commands())
        self.assertGreater(len(modules), 20)
        pages = answers([[module, '--help'] for module in modules], ROOT)
        for module, (status, page, err) in zip(modules, pages, strict=True):
            with self.subTest(module):
                self.assertEqual((status, err), (0, ''))
                lines = page.splitlines()
                self.assertLessEqual(len(lines), 60)
                self.assertLessEqual(max(map(len, lines)), 80)
                self.assertRegex(lines[-2] + lines[-1], '--helpfull.*flags')
                self.assertNoCommonElements(shown(page), ('pdb', 'verbosity'))
                if not module.startswith('benchmarks.'):
                    self.assertRegex(lines[0], r'^[A-Z].*[.?]$')
                    example = rf'^    (python -m {module} |make serving-compat)'
                    self.assertRegex(lines[2], example)

    def test_all_of_it(self):
        modules = list(commands())
        pages = self.pages(*(f'{module} --helpfull' for module in modules))
        for module, page in zip(modules, pages, strict=True):
            with self.subTest(module):
                self.assertNoCommonElements(shown(page), ('pdb', 'verbosity'))
                if not (
                    '@commands.takes' in self.source(module) or module == TRAIN
                ):
                    continue
                self.assertLessEqual(max(map(len, page.splitlines())), 80)
                self.assertEmpty(set(defined(module)) - set(shown(page)))
                self.assertNotRegex(' '.join(page.split()), r'[Dd]efault:? \.')
                # A command that goes on in the next line does so here too.
                about = page.partition('\n\n  --')[0]
                self.assertNotRegex(about, r'(?m)^    python .*\S {2,}--')

    def source(self, module):
        return (ROOT / (module.replace('.', '/') + '.py')).read_text()

    def test_order(self):
        """Shows first what one decides first, and each flag once."""
        train, classify, export = map(shown, self.pages(*ORDERED))
        self.assertEqual(train[: len(FIRST)], FIRST)
        self.assertEqual(
            classify[:6], ['train', 'dev', 'text', 'pair', 'label', 'regress']
        )
        self.assertEqual(export[:2], ['init', 'output'])
        run_flags = [name for name in defined(TRAIN) if '.' not in name]
        other = [x for x, of in FLAGS.items() if 'transformer' not in of]
        self.assertNotEmpty(other)
        self.assertCountEqual(
            [name for name in train if name != 'help'],
            set(run_flags) - set(other),
        )

    def test_rows(self):
        """Their settings, where they are named, wherever that stands."""
        pages = self.pages(*(f'{TRAIN} {line}' for line in ROWS))
        for line, page in zip(ROWS, pages, strict=True):
            with self.subTest(line):
                self.assertCountEqual(
                    [name for name in shown(page) if '.' in name],
                    [flag for flag, (known, _)
                     in setting_flags(ROWS[line]).items()
                     if not known.decided_by],
                )  # fmt: skip

    def test_encoders(self):
        pages = self.pages(*(f'{TRAIN} --help {line}' for line in ENCODED))
        for line, page in zip(ENCODED, pages, strict=True):
            self.assertCountEqual(
                set(shown(page)) & set(FLAGS), ['positions', *ENCODED[line]],
                line,
            )

    def test_one_name(self):
        """A group, a row or a flag, of which all is said."""
        group, row, view, flag, more = self.pages(*NAMED)
        self.assertContainsSubset(
            ['steps', 'optimizer', 'weight_decay', 'seed'], shown(group)
        )
        self.assertNotIn('size', shown(group))
        self.assertEqual(shown(row), ['permuted.k', 'permuted.order'])
        self.assertEqual(
            shown(view), ['words.negatives', 'words.subsample', 'words.window']
        )
        read_by = 'Rows: skip_gram, cbow.'
        self.assertEqual(' '.join(view.split()).count(read_by), 3)
        self.assertEqual(
            flag,
            '  --batch_size=32\n      Sequences of the global batch, over all '
            'devices. (a positive integer)\n',
        )
        self.assertEqual(shown(more), ['init', 'workdir'])

    def test_of_others(self):
        """Refuses unknown names; shows a task's epochs, and all to programs."""
        xml, squad = self.pages(XML, SQUAD)
        self.assertIn('--steps sets the number', squad)
        self.assertNotIn('small tables', squad)
        names = [x.text for x in ElementTree.fromstring(xml).iter('name')]
        self.assertContainsSubset(['data', 'init'], names)
        for line, message in UNKNOWN.items():
            status, out, err = printed()[line]
            self.assertEqual((status, out), (1, ''))
            self.assertRegex(err, message)
