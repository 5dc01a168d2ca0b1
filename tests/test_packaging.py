"""Package that a stranger installs, and commands that documents quote."""

import ast
import functools
import importlib
import math
import os
import pathlib
import re
import runpy
import shlex
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from unittest import mock

import keras
import setuptools
from absl import flags
from absl.testing import absltest

import infoword_tf
from benchmarks import bench, report
from infoword_tf import __main__ as program
from infoword_tf import assembly, commands, model
from infoword_tf.choices import RunChoices
from infoword_tf.encoders import ENCODERS
from infoword_tf.objectives import SUMS, TABLE, setting_flags
from infoword_tf.resolve import resolve
from infoword_tf.training import begin, optim
from infoword_tf.views import VIEWS, Specials
from tests import pages, places, quick
from tests.oracles import huggingface

ROOT = pathlib.Path(__file__).parent.parent
FLAGFILES = sorted((ROOT / 'tasks' / 'flags').glob('*.flags'))
DOCUMENTS = [
    ROOT / 'README.md',
    ROOT / 'WORKSPACE.md',
    *sorted((ROOT / 'docs').glob('*.md')),
    *sorted((ROOT / 'benchmarks' / 'tables').glob('*.md')),
]
# Programs of others that commands name.
OTHERS = 'mypy', 'pip', 'pytest', 'ruff', 'tensorboard.main', 'venv'
LONGEST_README = 175  # lines: a page for newcomers
BENCH = ROOT / bench.BenchChoices.tables


def described():
    """Returns what setup.py says of the package."""
    with mock.patch.object(setuptools, 'setup') as setup:
        runpy.run_path(str(ROOT / 'setup.py'))
    return setup.call_args.kwargs


# Folders of a checkout, and where the wheel has them.
PLACES = {
    'infoword_tf': pathlib.Path(),
    'tasks': pathlib.Path('infoword_tf'),
    'export': pathlib.Path('infoword_tf'),
}
# Settings of runs that only show that a command works.
TINY = (
    '--flagfile={flags}/ict_lookup.flags --corpus=text:a.txt --heldout=b.txt '
    '--steps=2 --warmup_steps=1 --batch_size=4 --seq_len=16 --vocab_size=99'
)
# A request, as a server that has the operations of tensorflow_text.
REQUEST = """
import sys
import tensorflow as tf
import tensorflow_text
asked = tf.saved_model.load('model/1').signatures['classify']
answer = asked(texts=tf.constant(['good', 'bad', '']))
print(answer['probabilities'].shape, 'infoword_tf' in sys.modules)
"""


def copied(folder):
    """Copies what a wheel is built from, so that nothing is left here."""
    source = folder / 'infoword_tf'
    for name in PLACES:
        shutil.copytree(
            ROOT / name,
            source / name,
            ignore=shutil.ignore_patterns('__pycache__'),
        )
    for name in ('setup.py', 'pyproject.toml'):
        shutil.copy(ROOT / name, source)
    for name in ('benchmarks', 'tests'):  # as a checkout has them
        (source / name).mkdir()
        (source / name / '__init__.py').touch()
    return source


def pip(*arguments):
    subprocess.run(
        [
            sys.executable, '-m', 'pip', *arguments, '--quiet', '--no-deps',
            '--no-index', '--disable-pip-version-check',
        ],
        check=True,
    )  # fmt: skip


def built(source, folder):
    pip('wheel', source, '--no-build-isolation', '-w', folder / 'wheels')
    (wheel,) = (folder / 'wheels').iterdir()
    return wheel


class SetupTest(places.Folder, absltest.TestCase):
    def test_a_script_beside_the_checkout_can_import_it(self):
        """There the checkout looks like a package without __init__.py.

        The program runs tasks/ and export/ of the checkout.
        """
        source, installed = copied(self.folder), self.folder / 'installed'
        installed.mkdir()
        build = (
            'from setuptools import build_meta;'
            f'print(build_meta.build_editable({str(installed)!r}))'
        )
        subprocess.run(
            [sys.executable, '-c', build],
            cwd=source, check=True, capture_output=True,
        )  # fmt: skip
        (wheel,) = installed.glob('*.whl')
        with zipfile.ZipFile(wheel) as file:
            file.extractall(installed)
        look = (
            f'import site; site.addsitedir({str(installed)!r});'
            'from importlib import util; from infoword_tf import __main__;'
            'print(util.find_spec("infoword_tf").origin);'
            'print(util.find_spec(__main__.module_of("classify")).origin);'
            '__main__.main(["flags"])'
        )
        done = subprocess.run(
            [sys.executable, '-S', '-c', look],
            cwd=self.folder, check=True, capture_output=True, text=True,
        )  # fmt: skip
        actual = [pathlib.Path(line) for line in done.stdout.splitlines()]
        names = 'infoword_tf/__init__.py', 'tasks/classify.py', 'tasks/flags'
        self.assertEqual(actual, [source / name for name in names])
        self.assert_has_program(installed)

    def test_the_wheel_holds_the_whole_tool(self):
        source = copied(self.folder)
        expected = {
            str(place / path.relative_to(source))
            for name, place in PLACES.items()
            for path in (source / name).rglob('*')
            if path.is_file()
        }
        wheel = built(source, self.folder)
        with zipfile.ZipFile(wheel) as file:
            names = set(file.namelist())
            file.extractall(self.folder / 'content')
        about = {name for name in names if '.dist-info/' in name}
        self.assertEqual(names - about, expected)
        self.assertContainsSubset(
            {
                'infoword_tf/py.typed',
                'infoword_tf/tasks/classify.py',
                'infoword_tf/tasks/flags/quickstart.flags',
                'infoword_tf/export/card.toml',
                'infoword_tf/export/serving/models.config',
                *(f'infoword_tf/{name}/__init__.py' for name in
                  ('data', 'encoders', 'layers', 'objectives', 'text')),
            },
            names,
        )  # fmt: skip
        self.assert_has_program(self.folder / 'content')

    def assert_has_program(self, folder):
        (about,) = folder.glob('*.dist-info')
        self.assertEqual(
            (about / 'top_level.txt').read_text().split(), ['infoword_tf']
        )
        lines = (about / 'entry_points.txt').read_text().split('\n')
        self.assertIn('infoword = infoword_tf.__main__:main', lines)

    def test_every_constraint_is_exact(self):
        lines = self._read('constraints.txt').split()
        for line in lines:
            self.assertRegex(line, r'^[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+$')
        names = [line.split('==')[0].lower() for line in lines]
        self.assertLen(set(names), len(names))
        extras = described()['extras_require'].values()
        expected = [
            re.match(r'[\w-]+', requirement)[0].lower()
            for requirement in sum(extras, described()['install_requires'])
        ]
        self.assertContainsSubset(
            {w.replace('_', '-') for w in expected},
            {n.replace('_', '-') for n in names},
        )

    def test_the_oracles_of_the_makefile_are_the_extra(self):
        makefile = self._read('Makefile').replace('\\\n', ' ')
        installed = re.search(
            r'\.venv-oracles/bin/python -m pip install (.*)', makefile
        )[1].split('-c constraints.txt')[1]
        extra = described()['extras_require']['oracles']
        self.assertEqual(installed.split(), extra)

    def test_what_is_optional_names_its_extra(self):
        extras = described()['extras_require']
        sources = [
            path.read_text()
            for room in ('infoword_tf', 'tasks', 'export')
            for path in (ROOT / room).rglob('*.py')
        ]
        named = re.findall(
            r"import_extra\(\s*[^,]+,\s*'(\w+)'|'infoword_tf\[(\w+)\]'",
            '\n'.join(sources),
        )
        self.assertNotEmpty(named)
        self.assertContainsSubset({a or b for a, b in named}, extras)

    def test_ci_runs_the_test_command_of_the_readme(self):
        lines = [
            line
            for line in self._read('.ci/run').splitlines()
            if line and not line.startswith('#')
        ]
        self.assertEqual(lines[-1], 'make test')
        self.assertIn('make test', self._read('README.md'))

    def _read(self, name):
        return (ROOT / name).read_text()


class InstallTest(places.Folder, absltest.TestCase):
    def setUp(self):
        """Installs a wheel where the checkout cannot be imported.

        All other libraries are those of this process.
        """
        super().setUp()
        wheel = built(copied(self.folder / 'checkout'), self.folder)
        shutil.rmtree(self.folder / 'checkout')
        environment = self.folder / 'environment'
        venv.create(environment, symlinks=True)
        self.bin = environment / 'bin'
        (packages,) = environment.glob('lib/python*/site-packages')
        text = '\n'.join(site.getsitepackages())
        (packages / 'libraries.pth').write_text(text)
        pip('--python', self.bin / 'python', 'install', wheel)

    def run_away(self, name, *arguments):
        """Runs a program of the environment; returns what it prints."""
        variables = {
            k: v for k, v in os.environ.items() if k != 'PYTHONPATH'
        }
        done = subprocess.run(
            [self.bin / name, *arguments],
            cwd=self.folder, env=variables, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_an_install_is_the_whole_tool(self):
        """Trains, fine-tunes, exports, verifies and answers."""
        code = (
            'from importlib import util; import infoword_tf;'
            'print(infoword_tf.__file__);'
            'print([util.find_spec(x) for x in ("tasks", "export")])'
        )
        where, others = self.run_away('python', '-c', code).splitlines()
        self.assertStartsWith(where, str(self.bin.parent))
        self.assertEqual(others, '[None, None]')
        for name, animal in ('a', 'cat'), ('b', 'dog'):
            (self.folder / f'{name}.txt').write_text(
                '\n\n'.join(
                    f'The {animal} sat on mat {i}.\nIt slept on mat {i}.'
                    for i in range(60)
                )
            )
        lines = ['text,label', *['good one,good', 'bad one,bad'] * 20]
        (self.folder / 'table.csv').write_text('\n'.join(lines))
        folder = self.run_away('infoword', 'flags').strip()
        typed = TINY.format(flags=folder).split()
        self.run_away('infoword', 'train', *typed, '--workdir=run')
        self.run_away(
            'infoword', 'classify', '--init=run', '--train=table.csv',
            '--dev=table.csv', '--text=text', '--label=label', '--steps=2',
            '--workdir=labels',
        )  # fmt: skip
        # Also by its module.
        self.run_away(
            'python', '-m', 'infoword_tf.export.savedmodel',
            '--init=labels', '--output=model',
        )  # fmt: skip
        printed = self.run_away(
            'infoword', 'verify', '--model=model/1', '--init=labels',
            '--texts=4',
        )  # fmt: skip
        self.assertIn('classify/probabilities', printed)
        answer = self.run_away('python', '-c', REQUEST)
        self.assertEqual(answer, '(3, 2) False\n')


def quoted_commands(text):
    """Lines `python -m ...`, `python FILE.py ...`, `infoword ...` and
    `make ...` of code blocks, joined at '\\'.
    """
    for block in re.findall(r'^```\w*\n(.*?)^```', text, re.M | re.S):
        for line in block.replace('\\\n', ' ').splitlines():
            line = line.split('  #')[0].strip()
            if re.match(r'(\S*python\S* (-m|\S+\.py)|\S*infoword|make) ', line):
                yield line


@functools.cache
def known_flags(module):
    """Names of the flags that a command has, settings of rows aside."""
    path = ROOT / (module.replace('.', '/') + '.py')
    actual = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args:
            function = ast.unparse(node.func)
            if function.startswith('flags.DEFINE_'):
                actual.add(ast.literal_eval(node.args[0]))
            elif function.endswith('.add_argument'):
                actual.add(ast.literal_eval(node.args[0]).removeprefix('--'))
    return actual


def count(config, vocabulary):
    """How many weights a model has; none of them is made."""
    with (
        keras.StatelessScope(initialize_variables=False),
        mock.patch.object(assembly, 'initialise'),
    ):
        built = model.Model(config, Specials(2, 3, 4, vocabulary))
    return sum(math.prod(v.shape) for v in built.variables.values())


class PackagingCommandsTest(absltest.TestCase):
    def check(self, command):
        folder = '$(infoword flags)'
        words = shlex.split(command.replace(folder, 'tasks/flags'))
        if pathlib.Path(words[0]).name == 'infoword':
            program.check(words[1])
            module, _ = program.COMMANDS.get(words[1], ('pip', ''))
            words[:2] = 'python', '-m', module
        if words[0].startswith('.venv-text/'):
            return  # a program of the page, over other people's
        if 'tests.workers' in words and '--' in words:
            cut = words.index('--')  # behind it a command of its own
            self.check(shlex.join(['python', '-m', *words[cut + 1 :]]))
            words = words[:cut]
        if words[0] == 'make':
            targets = re.findall(
                r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.M
            )
            for word in words[1:]:
                if '=' not in word:
                    self.assertIn(word, targets, command)
            return
        if words[1].endswith('.py'):
            words[1:2] = '-m', words[1].removesuffix('.py').replace('/', '.')
        module = words[words.index('-m') + 1]
        if module in OTHERS:
            return
        path = ROOT / (module.replace('.', '/') + '.py')
        self.assertTrue(path.is_file(), command)
        run = infoword_tf.train if module == 'infoword_tf.train' else None
        if '@commands.takes(' in path.read_text():
            run = importlib.import_module(module).run
        if run is not None:
            values = flags.FlagValues()
            commands.define(run.choices, values)
            values(words := words[words.index('-m') + 1 :])
            if module == 'infoword_tf.train':
                typed = [word for word in words if word.startswith('--')]
                begin.refuse_contradicting_ends(quick.choices(*typed), False)
            return
        settings = {
            k for k, (x, _) in setting_flags().items() if not x.decided_by
        }
        for flag in re.findall(r'(?<=\s--)[\w.]+', command):
            known = known_flags(module) | settings
            self.assertTrue({flag, flag.removeprefix('no')} & known, command)

    def test_documents(self):
        for path in DOCUMENTS:
            commands = list(quoted_commands(path.read_text()))
            self.assertNotEmpty(commands, path)
            for command in commands:
                self.check(command)

    def test_python(self):
        """Parses it; that the README's runs is a test of tests/inference."""
        for path in DOCUMENTS:
            for block in pages.python_of(path):
                ast.parse(block)

    def test_the_makefile(self):
        text = (ROOT / 'Makefile').read_text().replace('\\\n', ' ')
        commands = re.findall(r'\$\(PY\) (-m [^$].*)', text)
        self.assertGreater(len(commands), 5)
        for command in commands:
            self.check(re.sub(r'\$\(RUN\)', 'runs/quickstart', command))

    def test_flagfiles(self):
        """Each opens with its command, hardware, time and score, and runs.

        Those of publications say what is not as published. The trainer of
        SimCSE and those made of it have AdamW without decay and warm-up.
        """
        adamw = set()
        for path in FLAGFILES:
            text = path.read_text()
            header = re.match(r'(#.*\n)+', text)[0]
            name = path.relative_to(ROOT)
            module = re.search(
                rf'python -m (\S+) --flagfile={re.escape(str(name))}\n',
                header,
            )[1]
            for word in ('Hardware:', 'Time:', 'Score:'):
                self.assertIn(word, header, path.name)
            if module != 'infoword_tf.train':
                choices = text.removeprefix(header).replace('\n', ' ')
                self.check(f'python -m {module} {choices}')
                self.assertIn(f' --workdir=runs/{path.stem} ', choices)
                continue
            choices = quick.choices(f'--flagfile={path}')
            self.assertNotEmpty(resolve(choices).rows)
            self.assertEqual(choices.workdir, f'runs/{path.stem}', path.name)
            if choices.objectives in {*SUMS, 'simcse'}:
                self.assertIn('\n# Not as published', header, path.name)
            if choices.optimizer == 'adamw':
                self.assert_given(choices, weight_decay=0.0, warmup_steps=0)
                adamw.add(path.stem.removesuffix('_mini'))
        self.assertEqual(
            adamw, {'simcse', 'esimcse', 'diffcse', 'infocse', 'pairs'}
        )

    def assert_given(self, choices, **expected):
        actual = {name: getattr(choices, name) for name in expected}
        self.assertEqual(actual, expected)

    def published(self, name, weights, precision='mixed_bfloat16', **expected):
        """Checks choices of a flagfile, and how many weights its model has."""
        path = ROOT / 'tasks' / 'flags' / f'{name}.flags'
        self.assertIn('not run here', path.read_text())
        choices = quick.choices(f'--flagfile={path}')
        self.assert_given(
            choices, seq_len=512, init_deviation=0.02, weight_decay=None,
            **expected,
        )  # fmt: skip
        resolved = resolve(choices)
        config = resolved.config(choices.vocab_size, precision=precision)
        self.assertEqual(count(config, expected['vocab_size']), weights)
        return resolved

    def test_published_sizes(self):
        """Appendix B of Kong et al. 2019, and BERT's weights without pooler.

        BERT's published counts (Devlin et al. 2019) are these and a pooler of
        D (D + 1).
        """
        for size, rate, weights in (
            ('base', 4e-4, 109_482_240 - 768 * 769),
            ('large', 1e-4, 335_141_888 - 1024 * 1025),
        ):
            resolved = self.published(
                f'infoword_{size}', weights, batch_size=1024, steps=400_000,
                warmup_steps=18_000, learning_rate=rate, optimizer='infoword',
                vocab_size=30522,
            )  # fmt: skip
            self.assertEqual(
                {row: entry.weight for row, entry in resolved.rows.items()},
                {'bert_nce': 1.0, 'dim': 0.8},
            )

    def test_published_xlnet(self):
        """Yang et al. 2019 and their code, at the base size.

        Embeddings, the query's first state, and 12 layers: five square
        kernels, three biases of the width, two segments, two norms and the
        feed-forward; then the bias of each word.
        """
        d, v, hidden = 768, 32000, 4 * 768
        layer = 5 * d * d + 3 * d + 2 * d + 4 * d
        layer += 2 * d * hidden + hidden + d
        resolved = self.published(
            'plm_base', v * d + d + 12 * layer + v, batch_size=2048,
            memory_length=384, steps=500_000, warmup_steps=40_000,
            learning_rate=4e-4, optimizer='xlnet', clip_norm=None,
            tokenizer='sentencepiece', vocab_size=v, lower_case=False,
        )  # fmt: skip
        (source_spec,) = resolved.plan.source_specs
        self.assertEqual(
            dict(source_spec.arguments),
            {'length': 509, 'advance': 256, 'both_directions': True},
        )
        self.assertEqual(resolved.memory_length, 384)


def anchors(text):
    """The names that links can give to the headings of a document."""
    return {
        re.sub(r'[^\w -]', '', heading.lower()).replace(' ', '-')
        for heading in re.findall(r'^#+ (.*)$', text, re.M)
    }


class DocumentsTest(absltest.TestCase):
    def test_the_readme_is_one_page(self):
        text = (ROOT / 'README.md').read_text()
        self.assertLessEqual(len(text.splitlines()), LONGEST_README)
        for name in TABLE:
            self.assertIn(f'`{name}`', text)
        count = f'Its {len(TABLE)} training objectives'
        self.assertIn(count, ' '.join(text.split()))

    def test_what_is_decided_otherwise_is_no_flag(self):
        """Whatever was given, the data or another flag decided it."""
        actual = {k for k, (x, _) in setting_flags().items() if x.decided_by}
        # All of them are in tests/recorded.json.
        self.assertContainsSubset({'label.classes', 'sentences.pairs'}, actual)
        defined = flags.FlagValues()
        commands.define(RunChoices, defined)
        self.assertNoCommonElements(actual, list(defined))
        self.assertIn('dim.critic', defined)

    def test_rows_has_all_sums_rows_views_and_encoders(self):
        text = (ROOT / 'docs' / 'rows.md').read_text()
        for name, (rows, settings, *_) in SUMS.items():
            choices = [f'--{k}' if x is True else f'--{k}={x}'
                     for k, x in settings.items()]  # fmt: skip
            choices = ' '.join(f'`{flag}`' for flag in choices)
            line = f'| `{name}` | `{rows}` | {choices} |'.replace('  ', ' ')
            self.assertIn(f'\n{line}\n', text)
        for name in TABLE:
            self.assertRegex(text, rf'(?m)^## .*`{name}`', 'a part of its own')
        for name in (*VIEWS, *ENCODERS):
            self.assertRegex(text, rf'(?m)^\| `{name}` \| ')

    def test_rows_is_as_the_tables_make_it(self):
        text = pages.ROWS.read_text()
        self.assertEqual(text, pages.rows_page())
        self.assertIn(f'"all three" are {pages.THREE}', ' '.join(text.split()))

    def test_sums_say_how_they_differ_from_publications(self):
        named = [name for name, entry in SUMS.items() if not entry.differs]
        self.assertEqual(named, ['pairs'])
        flag = '--simcse.query_flops=3e-4 --simcse.passage_flops=1e-4'
        self.assertIn(flag, pages.differences())

    def test_the_page_of_settings_is_that_of_the_table(self):
        self.assertEqual(pages.PAGE.read_text(), pages.settings_page())
        self.assertIn(
            '| `--dim.temperature` | 1e-06 or more | 0.05 | Temperature: the',
            pages.settings_page(),
        )

    def test_rows_has_all_optimizers(self):
        text = (ROOT / 'docs' / 'rows.md').read_text()
        actual = dict(
            re.findall(r'^\| `(\w+)` \| (0\.9,.*|Adagrad.*) \|$', text, re.M)
        )
        self.assertEqual(list(actual), list(optim.PRESETS))
        for name, rules in optim.PRESETS.items():
            moments = f'{rules.beta_1}, {rules.beta_2} | {rules.epsilon:g}'
            if rules.beta_2 is None:
                start = ' by row, from 0' if rules.by_row else ', from 1'
                moments = f'Adagrad{start} | none'
            corrected = rules.corrected and rules.beta_2 is not None
            self.assertStartsWith(
                actual[name],
                f'{moments} | {"yes" if corrected else "no"} | '
                f'{rules.weight_decay:g} | {rules.clip_norm:g} | '
                + {'none': 'level'}.get(rules.lr_decay, rules.lr_decay),
            )
        for flag in ('optimizer', 'init_deviation'):
            self.assertIn(f'`--{flag}`', text)

    def test_weights_says_how_many_models_are_compared(self):
        self.assertIn(
            f'all layers and heads of {len(huggingface.CASES)} tiny models',
            (ROOT / 'docs' / 'weights.md').read_text(),
        )

    def test_links_lead_somewhere(self):
        for path in [*DOCUMENTS, ROOT / 'CHANGELOG.md']:
            text = re.sub(r'(?ms)^```.*?^```', '', path.read_text())
            for target in re.findall(r'\]\(([^)\s]+)\)', text):
                if target.startswith('https://'):
                    continue
                name, _, anchor = target.partition('#')
                file = path.parent / name if name else path
                self.assertTrue(file.is_file(), f'{path.name}: {target}')
                if anchor:
                    self.assertIn(anchor, anchors(file.read_text()), target)

    def test_tables_of_the_readme_are_those_of_the_pages(self):
        """A figure that stands in two places is one figure."""
        readme = (ROOT / 'README.md').read_text()
        speed = (BENCH / 'speed.md').read_text()
        number = re.compile(r'\d+\.\d+')
        known = {
            float(x) for name in ('results', 'pretraining', 'weights')
            for x in number.findall((ROOT / f'docs/{name}.md').read_text())
        }  # fmt: skip
        part = re.search(r'^## What you get\n(.*?)^## ', readme, re.M | re.S)[1]
        scores = number.findall(part.partition('|---')[2])
        self.assertGreater(len(scores), 15)
        missing = [
            score for score in scores if float(score) not in
            {round(x, len(score.partition('.')[2])) for x in known}
        ]  # fmt: skip
        self.assertEqual(missing, [])
        part = re.search(r'^## Speed\n(.*?)^## ', readme, re.M | re.S)[1]
        times = re.findall(r'\d[\d,]*\.\d+', part)
        self.assertLen(times, 4)
        content = ' '.join(report.between(speed).values())
        for figure in times:
            self.assertIn(f' {figure} (', content, 'with its spread')

    def test_speed_has_a_place_for_every_table(self):
        both = {
            name for name, each in bench.BENCHMARKS.items() if not each.native
        } | {bench.MACHINE}
        for native, page in bench.PAGES.items():
            text = (BENCH / f'{page}.md').read_text()
            more = set(bench.BENCHMARKS) if native else set()
            self.assertEqual(set(report.between(text)), both | more)
        choices = bench.BenchChoices()
        for page, name in (
            (choices.readme, bench.SUMMARY), (choices.speed, bench.EXPECTED)
        ):  # fmt: skip
            text = (ROOT / page).read_text()
            self.assertEqual(set(report.between(text)), {name})

    def test_prose_about_speed_quotes_no_figure(self):
        """They stand in tables that a command makes, or nowhere."""
        pages_of_speed = (
            ROOT / bench.BenchChoices.speed, BENCH / 'speed.md'
        )
        speed = '\n'.join(page.read_text() for page in pages_of_speed)
        prose = re.sub(r'(?s)<!-- bench: .*?<!-- end -->', '', speed)
        prose = re.sub(r'(?ms)^```.*?^```', '', prose)
        for text in (
            r'\d(?:\.\d+)? times (?:as|slower|faster|less)', r'tokens/s \(',
            r'\d (?:ms|seconds|%|GFLOP/s)\b', r'^\|.*\d\.\d.* tokens',
        ):
            self.assertNotRegex(prose, text)
