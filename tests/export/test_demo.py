"""The page of an export: its tabs, hostile texts, and a real browser."""

import http.client
import importlib.util
import re
import shutil
import socket
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from export import demo
from tests import places
from tests.export import workdirs
from tests.tasks import command, counting

needs_gradio = unittest.skipUnless(
    importlib.util.find_spec('gradio'), 'no Gradio: make demo-check'
)
CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')
MARKUP = '<b>x</b><script>alert(1)</script> **y** $$z$$ <img src=//far.example>'


class TabsTest(absltest.TestCase):
    """Rows are what the signatures of real exports answer."""

    def test_blanks(self):
        blanks = workdirs.served()['fill_mask']
        text = 'a [MASK] of the [MASK]'
        want = blanks(texts=tf.constant([text]))
        tokens = want['tokens'].numpy()[0, :2]
        shares = np.exp(want['scores'].numpy()[0, :2])
        self.assertEqual(
            demo.ask('fill_mask', blanks, text),
            [(f'{n + 1}: {tokens[n, i].decode()}', f'{shares[n, i]:.1%}')
             for n in range(2) for i in range(10)],
        )  # fmt: skip
        self.assertLen(demo.ask('fill_mask', blanks, '[MASK] ' * 11), 80)
        ((row, _),) = demo.ask('fill_mask', blanks, 'none')
        self.assertEqual(row, 'Write [MASK] where a token is missing.')

    def test_likeness(self):
        def embed(texts):
            return {'embeddings': counting.embed(texts)}

        # Counts (1, 1) and (1, 0): cos 45 degrees.
        self.assertEqual(
            demo.ask('embed', embed, 'cats boats', 'boats'),
            [('cosine', '0.7071'), ('inner product', '1.0000')],
        )
        self.assertEqual(demo.ask('embed', embed, '', 'a')[0][1], '0.0000')

    def test_other_signatures(self):
        labels = {'labels': [[b'a', b'<b>', b'c']],
                  'probabilities': [[0.2, 0.5, 0.3]]}  # fmt: skip
        classes = [('<b>', '50.0%'), ('c', '30.0%'), ('a', '20.0%')]
        for name, outputs, texts, rows in (
            ('classify', labels, ['x'], classes),
            ('classify_pairs', labels, ['x', 'y'], classes),
            ('regress', {'score': [3.25]}, ['x'], [('', '3.25')]),
            ('regress_pairs', {'score': [-1.0]}, ['x', 'y'], [('', '-1')]),
            ('score_pairs', {'score': [0.5]}, ['x', 'y'], [('', '0.5')]),
            ('choose', {'choice': [1], 'probabilities': [[0.1, 0.9]]},
             ['x', 'one\r\ntwo'], [('two', '90.0%'), ('one', '10.0%')]),
            ('answer', {'texts': [[b'1', b'2']], 'probabilities': [[0.5, 0.2]]},
             ['who', 'a text'], [('1', '50.0%'), ('2', '20.0%')]),
            ('next_token', {'tokens': [[b'day', b'\xff']],
                            'scores': np.log([[0.75, 0.125]])},
             ['good'], [('day', '75.0%'), ('\ufffd', '12.5%')]),
        ):  # fmt: skip
            def signature(outputs=outputs, **inputs):
                self.inputs = {k: v.numpy().tolist() for k, v in inputs.items()}
                return {k: tf.constant(v) for k, v in outputs.items()}

            self.assertEqual(demo.ask(name, signature, *texts), rows, name)
            first, *second = (text.encode() for text in texts)
            self.assertEqual(self.inputs.pop('texts'), [first])
            expected = [second[0].split()] if name == 'choose' else second
            self.assertEqual([*self.inputs.values()], [expected] * bool(second))

    def test_fields_of_two_texts_say_which_is_which(self):
        actual = {
            name: [*fields] for name, (_, fields, _) in demo.TABS.items()
            if len(fields) > 1
        }  # fmt: skip
        of_pairs = ['Text', 'Second text']
        self.assertEqual(actual, {
            'classify_pairs': of_pairs, 'regress_pairs': of_pairs,
            'score_pairs': ['Query', 'Passage'],
            'choose': ['Text', 'Choices, a line each'],
            'answer': ['Question', 'Text'],
            'embed': ['First text', 'Second text'],
        })  # fmt: skip


class CommandTest(places.Folder, command.Checks, absltest.TestCase):
    def setUp(self):
        super().setUp()
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
            try:
                url = process.stdout.readline().split()[0]
                self.assertStartsWith(url, 'http://127.0.0.1:')
                self.check_answers(url)
                self.check_hosts(url)
                if CHROMIUM is None:
                    self.skipTest('there is no Chromium')
                self.check_browser(url)
            finally:
                process.terminate()

    def check_answers(self, url):
        """Any text comes back as it is, in cells that hold no markup."""
        import gradio_client

        client = gradio_client.Client(url, verbose=False)
        self.addCleanup(client.close)
        actual = client.predict(f'cats {MARKUP}', 1, 2, api_name='/search')
        self.assertEqual(actual['headers'], ['score', 'source', 'text'])
        self.assertEqual(actual['data'][0][2], f'cats in a {MARKUP}')
        actual = client.predict('a', 'a', api_name='/embed')
        self.assertEqual(actual['data'][0], ['cosine', '1.0000'])
        self.assertEqual(
            {x['props']['datatype'] for x in client.config['components']
             if x['type'] == 'dataframe'}, {'str'}
        )  # fmt: skip
        self.assertFalse(client.config['analytics_enabled'])

    def check_hosts(self, url):
        """A page elsewhere, whose name leads here, gets nothing."""
        where = url.split('/')[2]
        for host, status in (('localhost:1', 200), ('far.example', 400)):
            connection = http.client.HTTPConnection(where, timeout=60)
            self.addCleanup(connection.close)
            connection.request('GET', '/', headers={'Host': host})
            self.assertEqual(connection.getresponse().status, status, host)

    def check_browser(self, url):
        """The whole page is there, and it asked nobody else for a thing."""
        log = self.folder / 'net.json'
        done = subprocess.run(
            [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu',
             f'--user-data-dir={self.folder}/chromium', f'--log-net-log={log}',
             '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
             '--disable-features=AutofillServerCommunication',
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
