"""The page of an export: its tabs, hostile texts, and a real browser."""

import importlib.util
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import unittest
import urllib.error
import urllib.request
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from export import demo
from tests.export import answering, finetuned, workdirs
from tests.tasks import command, counting

HAS_GRADIO = importlib.util.find_spec('gradio') is not None
needs_gradio = unittest.skipUnless(
    HAS_GRADIO, 'Gradio is not installed: make demo-check'
)
CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')
MARKUP = '<b>x</b><script>alert(1)</script> **y** $$z$$ <img src=//far.example>'


class TabsTest(absltest.TestCase):
    """Rows are what the signatures of real exports answer."""

    def ask(self, name, signatures, *texts):
        return demo.ask(name, signatures[name], *texts)

    def test_blanks(self):
        served = workdirs.served()
        text = 'a [MASK] of the [MASK]'
        want = served['fill_mask'](texts=tf.constant([text]))
        tokens = want['tokens'].numpy()[0, :2]
        shares = np.exp(want['scores'].numpy()[0, :2])
        self.assertEqual(
            self.ask('fill_mask', served, text),
            [(f'{n + 1}: {tokens[n, i].decode()}', f'{shares[n, i]:.1%}')
             for n in range(2) for i in range(10)],
        )  # fmt: skip
        self.assertLen(self.ask('fill_mask', served, '[MASK] ' * 11), 80)
        ((row, _),) = self.ask('fill_mask', served, 'none')
        self.assertEqual(row, 'Write [MASK] where a token is missing.')

    def test_likeness(self):
        embed = {'embed': lambda texts: {'embeddings': counting.embed(texts)}}
        # Counts (1, 1) and (1, 0): cos 45 degrees.
        self.assertEqual(
            self.ask('embed', embed, 'cats boats', 'boats'),
            [('cosine', '0.7071'), ('inner product', '1.0000')],
        )
        self.assertEqual(self.ask('embed', embed, '', 'a')[0][1], '0.0000')

    def test_labels(self):
        for kind, name, texts, many in (
            ('classes', 'classify', ['a b'], 3),
            ('pairs', 'classify_pairs', ['a b', 'c'], 3),
            ('choices', 'choose', ['a', 'b\nc\nd'], 3),
        ):
            rows = self.ask(name, finetuned.served(kind), *texts)
            shares = [float(share.rstrip('%')) for _, share in rows]
            self.assertLen(shares, many)
            self.assertEqual(shares, sorted(shares, reverse=True))
            self.assertAlmostEqual(sum(shares), 100, delta=0.2)
            names = 'bcd' if name == 'choose' else ('bad', 'fair', 'good')
            self.assertCountEqual([row[0] for row in rows], names)
        want = finetuned.loaded('number').rate(['a b'])[0]
        (row,) = self.ask('regress', finetuned.served('number'), 'a b')
        self.assertEqual(row, ('', f'{want:.4g}'))

    def test_answers(self):
        rows = self.ask('answer', answering.served('plain'), 'who', 'a b c')
        self.assertNotEmpty(rows)
        for text, _ in rows:
            self.assertIn(text, 'a b c')

    def test_next_words(self):
        def signature(texts):
            self.assertEqual(texts.numpy().tolist(), [b'good'])
            return {'tokens': tf.constant([[b'day', b'\xff']]),
                    'scores': tf.math.log([[0.75, 0.125]])}  # fmt: skip

        self.assertEqual(
            demo.ask('next_token', signature, 'good'),
            [('day', '75.0%'), ('\ufffd', '12.5%')],
        )


class CommandTest(command.Checks, absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.model = self.folder / 'model' / '1'
        counting.save(self.model, 'cosine')

    def test_what_is_wrong_is_said_before_the_model_is_loaded(self):
        model = f'--model={self.model}'
        with (
            socket.create_server(('127.0.0.1', 0)) as taken,
            mock.patch.dict(sys.modules, {'gradio': None}),
        ):
            port = taken.getsockname()[1]
            for arguments, message in (
                ((model, f'--port={port}'), f'port={port}: Address already in'),
                ((model, '--host=no.such.name.invalid'), '--host=no.such.name'),
                ((model, f'--index={self.folder}/no'), 'holds no index yet'),
                ((model, '--documents=a.jsonl'), 'there is no such file'),
                ((), '--model is missing: name an exported model, DIR/1'),
                ((f'--model={self.folder}',), 'is no version of an export'),
                ((model,), r"pip install 'infoword_tf\[demo\]'"),
            ):
                done = command.run(demo, *arguments)
                self.assert_complains(done, message)

    @needs_gradio
    def test_a_browser_without_a_net(self):
        (self.folder / 'text.txt').write_text(f'boats\n\ncats in a {MARKUP}\n')
        with subprocess.Popen(
            [sys.executable, '-m', 'export.demo', f'--model={self.model}',
             f'--corpus=text:{self.folder}/text.txt'],
            stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            self.addCleanup(process.kill)
            url = process.stdout.readline().split()[0]
            self.assertStartsWith(url, 'http://127.0.0.1:')
            self.check_answers(url)
            self.check_hosts(url)
            if CHROMIUM is None:
                self.skipTest('there is no Chromium')
            self.check_browser(url)

    def check_answers(self, url):
        """Any text comes back as it is, in cells that hold no markup."""
        import gradio_client

        client = gradio_client.Client(url, verbose=False)
        self.addCleanup(client.close)
        found = client.predict(f'cats {MARKUP}', 1, 2, api_name='/search')
        self.assertEqual(found['headers'], ['score', 'source', 'text'])
        self.assertEqual(found['data'][0][2], f'cats in a {MARKUP}')
        found = client.predict('a', 'a', api_name='/embed')
        self.assertEqual(found['data'][0], ['cosine', '1.0000'])
        self.assertEqual(
            {x['props']['datatype'] for x in client.config['components']
             if x['type'] == 'dataframe'}, {'str'}
        )  # fmt: skip
        self.assertFalse(client.config['analytics_enabled'])
        self.assertFalse(client.config['is_colab'] or client.config['is_space'])

    def check_hosts(self, url):
        """A page elsewhere, whose name leads here, gets nothing."""
        for host, status in (('localhost:1', 200), ('far.example', 400)):
            request = urllib.request.Request(url, headers={'Host': host})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    found = answer.status
            except urllib.error.HTTPError as error:
                found = error.code
            self.assertEqual(found, status, host)

    def check_browser(self, url):
        """The whole page is there, and it asked nobody else for a thing."""
        log = self.folder / 'net.json'
        done = subprocess.run(
            [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu',
             f'--user-data-dir={self.folder}/chromium', f'--log-net-log={log}',
             '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
             '--virtual-time-budget=20000', '--dump-dom', url],
            capture_output=True, timeout=120, text=True,
        )  # fmt: skip
        for tab in ('Search', 'Likeness'):
            self.assertRegex(done.stdout, f'role="tab"[^>]*>{tab}')
        asked = [
            re.search(r'"url":"\w+://([^/"]*)', line)[1]
            for line in log.read_text().splitlines()
            if '"network_isolation_key":"http://127' in line and '"url"' in line
        ]
        self.assertGreater(len(asked), 20)
        self.assertEqual(set(asked), {url.split('/')[2]})


if __name__ == '__main__':
    absltest.main()
