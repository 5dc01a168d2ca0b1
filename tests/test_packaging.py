"""What a stranger installs, and the commands that the documents quote."""

import functools
import math
import pathlib
import re
import runpy
import shlex
import subprocess
import sys
from unittest import mock

import setuptools
from absl import flags
from absl.testing import absltest, flagsaver

from infoword_tf import model, train
from infoword_tf.views import Specials

ROOT = pathlib.Path(__file__).parent.parent
FLAGFILES = sorted((ROOT / 'tasks' / 'flags').glob('*.flags'))
DOCUMENTS = [ROOT / 'README.md', ROOT / 'WORKSPACE.md']


class SetupTest(absltest.TestCase):
    def test_the_wheel_holds_the_library_alone(self):
        found = setuptools.find_packages(ROOT, include=['infoword_tf*'])
        folders = {
            '.'.join(path.parent.relative_to(ROOT).parts)
            for path in (ROOT / 'infoword_tf').rglob('__init__.py')
        }
        self.assertEqual(set(found), folders)
        self.assertIn("include=['infoword_tf*']", self._read('setup.py'))

    def test_every_constraint_is_exact(self):
        lines = self._read('constraints.txt').split()
        for line in lines:
            self.assertRegex(line, r'^[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+$')
        names = [line.split('==')[0].lower() for line in lines]
        self.assertLen(set(names), len(names))
        with mock.patch.object(setuptools, 'setup') as setup:
            runpy.run_path(str(ROOT / 'setup.py'))
        described = setup.call_args.kwargs
        extras = described['extras_require'].values()
        wanted = [
            re.match(r'[\w-]+', requirement)[0].lower()
            for requirement in sum(extras, described['install_requires'])
        ]
        self.assertContainsSubset(
            {w.replace('_', '-') for w in wanted},
            {n.replace('_', '-') for n in names},
        )

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


def quoted_commands(text):
    """Lines `python -m ...` and `make ...` of code blocks, joined at '\\'."""
    for block in re.findall(r'^```\w*\n(.*?)^```', text, re.M | re.S):
        for line in block.replace('\\\n', ' ').splitlines():
            line = line.split('  #')[0].strip()
            if re.match(r'(\S*python\S* -m|make) ', line):
                yield line


@functools.cache
def known_flags(module):
    """What `python -m module --help` prints."""
    done = subprocess.run(
        [sys.executable, '-m', module, '--help'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


class CommandsTest(absltest.TestCase):
    def check(self, command):
        words = shlex.split(command)
        if words[0] == 'make':
            targets = re.findall(
                r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.M
            )
            for word in words[1:]:
                if '=' not in word:
                    self.assertIn(word, targets, command)
            return
        module = words[words.index('-m') + 1]
        if module in ('pytest', 'ruff', 'pip', 'venv', 'tensorboard.main'):
            return
        path = ROOT / (module.replace('.', '/') + '.py')
        self.assertTrue(path.is_file(), command)
        if module == 'infoword_tf.train':
            with flagsaver.flagsaver():
                rest = flags.FLAGS(['train', *words[words.index('-m') + 2 :]])
                self.assertLen(rest, 1, command)
            return
        for flag in re.findall(r'(?<=\s--)\w+', command):
            self.assertRegex(known_flags(module), rf'--(\[no\])?{flag}\b')

    def test_documents(self):
        for path in DOCUMENTS:
            commands = list(quoted_commands(path.read_text()))
            self.assertNotEmpty(commands, path)
            for command in commands:
                self.check(command)

    def test_the_makefile(self):
        text = (ROOT / 'Makefile').read_text().replace('\\\n', ' ')
        commands = re.findall(r'\$\(PY\) (-m [^$].*)', text)
        self.assertGreater(len(commands), 5)
        for command in commands:
            self.check(re.sub(r'\$\(RUN\)', 'runs/quickstart', command))

    def test_flagfiles(self):
        """Each opens with its command, hardware, time and score, and runs."""
        self.assertNotEmpty(FLAGFILES)
        for path in FLAGFILES:
            text = path.read_text()
            header = re.match(r'(#.*\n)+', text)[0]
            name = path.relative_to(ROOT)
            self.assertIn(f'python -m infoword_tf.train --flagfile={name}',
                          header)
            for word in ('Hardware:', 'Time:', 'Score:'):
                self.assertIn(word, header, path.name)
            with flagsaver.flagsaver():
                flags.FLAGS(['train', f'--flagfile={path}'])
                rows, masking, encoder = train.choose_rows()
                self.assertNotEmpty(rows)
                train.choose_plan(rows, masking)
                train.choose_memory(encoder)
                train.describe_encoder(
                    encoder, None, 8192, train.fixed_arguments(rows)
                )
                self.assertEqual(
                    train.WORKDIR.value, f'runs/{path.stem}', path.name
                )

    def test_published_sizes(self):
        """Appendix B of Kong et al. 2019, and BERT's weights without pooler.

        BERT's published counts (Devlin et al. 2019) are these and a pooler of
        D (D + 1).
        """
        for size, rate, weights in (
            ('base', 4e-4, 109_482_240 - 768 * 769),
            ('large', 1e-4, 335_141_888 - 1024 * 1025),
        ):
            path = ROOT / 'tasks' / 'flags' / f'infoword_{size}.flags'
            self.assertIn('not run here', path.read_text())
            with flagsaver.flagsaver():
                flags.FLAGS(['train', f'--flagfile={path}'])
                self.assertEqual(train.BATCH_SIZE.value, 1024)
                self.assertEqual(train.SEQ_LEN.value, 512)
                self.assertEqual(train.STEPS.value, 400_000)
                self.assertEqual(train.WARMUP_STEPS.value, 18_000)
                self.assertEqual(train.LEARNING_RATE.value, rate)
                self.assertEqual(train.WEIGHT_DECAY.value, 0.01)
                rows, _, name = train.choose_rows()
                encoder = train.describe_encoder(
                    name, None, train.VOCAB_SIZE.value
                )
            self.assertEqual(
                {row: entry['weight'] for row, entry in rows.items()},
                {'bert_nce': 1.0, 'dim': 0.8},
            )
            config = {
                'encoder': encoder,
                'rows': rows,
                'precision': 'mixed_bfloat16',
            }
            # Without drawing them: zeros take no memory that is touched.
            with mock.patch.object(model, 'initialise'):
                built = model.Model(config, Specials(2, 3, 4, 30522))
            found = sum(math.prod(v.shape) for v in built.variables.values())
            self.assertEqual(found, weights)

    def test_published_xlnet(self):
        """Yang et al. 2019 and their code, at the base size.

        Embeddings, the query's first state, and 12 layers: five square
        kernels, three biases of the width, two segments, two norms and the
        feed-forward; then the bias of each word.
        """
        path = ROOT / 'tasks' / 'flags' / 'plm_base.flags'
        self.assertIn('not run here', path.read_text())
        with flagsaver.flagsaver():
            flags.FLAGS(['train', f'--flagfile={path}'])
            self.assertEqual(train.BATCH_SIZE.value, 2048)
            self.assertEqual(train.SEQ_LEN.value, 512)
            self.assertEqual(train.MEMORY_LENGTH.value, 384)
            self.assertEqual(train.STEPS.value, 500_000)
            self.assertEqual(train.WARMUP_STEPS.value, 40_000)
            self.assertEqual(train.LEARNING_RATE.value, 4e-4)
            rows, masking, name = train.choose_rows()
            self.assertEqual(
                train.choose_plan(rows, masking).reading['streams'],
                {'length': 509, 'advance': 256, 'both_directions': True},
            )
            self.assertEqual(train.choose_memory(name), 384)
            encoder = train.describe_encoder(
                name,
                None,
                train.VOCAB_SIZE.value,
                train.fixed_arguments(rows),
            )
        config = {
            'encoder': encoder,
            'rows': rows,
            'precision': 'mixed_bfloat16',
        }
        with mock.patch.object(model, 'initialise'):
            built = model.Model(config, Specials(2, 3, 4, 32000))
        d, v, hidden = 768, 32000, 4 * 768
        layer = 5 * d * d + 3 * d + 2 * d + 4 * d
        layer += 2 * d * hidden + hidden + d
        self.assertEqual(
            sum(math.prod(x.shape) for x in built.variables.values()),
            v * d + d + 12 * layer + v,
        )

    def test_the_readme_shows_the_whole_table(self):
        from infoword_tf.objectives import SUMS, TABLE

        text = (ROOT / 'README.md').read_text()
        for name, row in TABLE.items():
            self.assertRegex(
                text,
                re.escape(f'| `{name}` | {row.a} | {row.b} | '),
                'the zoo table of the README',
            )
        for name in SUMS:
            self.assertIn(f'`{name}`', text)


if __name__ == '__main__':
    absltest.main()
