"""The page of an export: real requests, hostile ones, and a real browser."""

import base64
import hashlib
import html
import http.client
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.parse
from unittest import mock

import numpy as np
from absl.testing import absltest

from export import demo, page, search
from infoword_tf import commands
from infoword_tf.config import read_exported
from infoword_tf.evaluation import ranking
from tests.export import workdirs
from tests.tasks import command, counting

MARKUP = '<script>alert(1)</script><b onclick="x">\'&amp;</textarea>'
CHROMIUM = next(filter(None, map(shutil.which, ('chromium', 'google-chrome'))),
                None)  # fmt: skip


class Answer:
    """What came back."""

    def __init__(self, answer):
        self.status, self.headers = answer.status, answer.headers
        self.text = answer.read().decode()

    @property
    def visible(self):
        """The text of the page, as a reader has it."""
        inner = re.sub('<style>.*?</style>', '', self.text, flags=re.DOTALL)
        return html.unescape(re.sub('<[^>]*>', ' ', inner))


class PageTest(absltest.TestCase):
    """One server over a model that embeds words by counting them."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = pathlib.Path(absltest.get_default_test_tmpdir()) / 'page'
        shutil.rmtree(cls.folder, ignore_errors=True)
        model = cls.folder / 'model' / '1'
        counting.save(model, 'cosine')
        (cls.folder / 'text.txt').write_text(
            f'boats on a river\n\ncats in a tree\n\n{MARKUP} is a text\n'
        )
        given = search.Choices(
            model=str(model), corpus=f'text:{cls.folder}/text.txt'
        )
        opened = search.prepare(given, {'corpus': given.corpus})
        loaded = workdirs.serve(str(model))
        real = workdirs.served()
        cls.signatures = {**real, 'embed': loaded.signatures['embed']}
        cls.server = demo.Server('127.0.0.1', 0)
        cls.addClassCleanup(cls.server.server_close)
        cls.index, embed = opened(loaded)
        cls.embed = staticmethod(embed)
        cls.server.demo = demo.Demo(
            'a <model>', read_exported(model)[0], cls.signatures,
            (cls.index, embed),
        )  # fmt: skip
        thread = threading.Thread(target=cls.server.serve_forever)
        thread.start()
        cls.addClassCleanup(thread.join)
        cls.addClassCleanup(cls.server.shutdown)

    def ask(self, path='/', method='GET', host=None, **given):
        connection = http.client.HTTPConnection(
            '127.0.0.1', self.server.server_port, timeout=60
        )
        self.addCleanup(connection.close)
        if given:
            path += '?' + urllib.parse.urlencode(given)
        headers = {} if host is None else {'Host': host}
        connection.request(method, path, headers=headers)
        return Answer(connection.getresponse())

    def test_it_shows_what_the_model_can_do(self):
        answer = self.ask()
        self.assertEqual(answer.status, 200)
        self.assertEqual(
            re.findall('<section id="(.*)">', answer.text),
            ['search', 'fill_mask', 'embed'],
        )
        self.assertIn('<h1>a &lt;model&gt;</h1>', answer.text)
        self.assertIn('3 passages', answer.visible)
        self.assertNotIn('<script', answer.text)

    def test_nothing_but_its_own_style_is_allowed(self):
        answer = self.ask()
        style = re.search('<style>(.*?)</style>', answer.text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest())
        policy = answer.headers['Content-Security-Policy']
        self.assertIn("default-src 'none'", policy)
        self.assertIn(f"style-src 'sha256-{digest.decode()}'", policy)
        self.assertNotIn('unsafe', policy)
        self.assertNotIn('style=', answer.text)
        self.assertEqual(answer.headers['X-Content-Type-Options'], 'nosniff')
        links = re.findall(r'(?:src|href|action)="([^"]*)"', answer.text)
        self.assertNotEmpty(links)
        for address in links:
            self.assertRegex(address, '^(#|/|data:,$)')

    def test_search_is_that_of_the_command(self):
        for words in (0.0, 0.3, 0.5, 1.0):
            answer = self.ask('/search', text='cats', words=words, answers=2)
            want = search.find('cats', self.index, self.embed, 2, words)
            found = re.findall(
                '<span class="score">(.*?)</span>'
                '<span class="source">(.*?)</span>', answer.text
            )  # fmt: skip
            self.assertEqual(
                found, [(f'{x:.3f}', html.escape(p.source)) for x, p in want]
            )
            self.assertRegex(found[0][1], r'text\.txt:3$')
            # The form has what was asked.
            self.assertIn('name="text" value="cats"', answer.text)
            self.assertIn(f'name="words" value="{words}"', answer.text)

    def test_half_words_is_hybrid_and_the_ends_are_one_search(self):
        query = 'a boats in'
        by_vectors = self.index.search(self.embed([query], 'query'), 100)
        by_words = self.index.words.search([query], 100)
        for words, want in (
            (0, by_vectors),
            (0.25, ranking.merge([by_vectors, by_words], 3, [1.5, 0.5])),
            (0.5, ranking.merge([by_vectors, by_words], 3)),
            (1, by_words),
        ):
            found = search.find(query, self.index, self.embed, 3, words)
            keep = want[1][0][:3] >= 0
            np.testing.assert_allclose(
                [score for score, _ in found], want[0][0][:3][keep], rtol=1e-6
            )
            self.assertEqual(
                [p for _, p in found],
                [self.index.passage(i) for i in want[1][0][:3][keep]],
            )

    def test_blanks_are_those_of_the_signature(self):
        import tensorflow as tf

        text = 'a [MASK] of the [MASK]'
        want = self.signatures['fill_mask'](texts=tf.constant([text]))
        answer = self.ask('/fill_mask', text=text)
        rows = re.findall(
            '<tr><td>(.*?)</td><td class="number">(.*?)%</td>', answer.text
        )
        tokens = want['tokens'].numpy()[0, :2].ravel()
        self.assertEqual(
            [html.unescape(token) for token, _ in rows],
            [token.decode() for token in tokens],
        )
        np.testing.assert_allclose(
            [float(share) for _, share in rows],
            100 * np.exp(want['scores'].numpy()[0, :2].ravel()),
            atol=0.051,
        )
        self.assertIn('Blank 2', answer.visible)
        answer = self.ask('/fill_mask', text='[MASK] ' * 11)
        self.assertIn('The first 8 are answered.', answer.visible)

    def test_likeness(self):
        # Counts (1, 1) and (1, 0): cos 45 degrees.
        answer = self.ask('/embed', text='cats boats', pair='boats')
        self.assertRegex(answer.visible, r'cosine\s+0\.7071')

    def test_markup_stays_text(self):
        answer = self.ask('/search', text=MARKUP, words=1)
        self.assertEqual(answer.status, 200)
        self.assertNotIn('<script', answer.text)
        self.assertNotIn('<b ', answer.text)
        # In the field, and in the passage.
        self.assertEqual(answer.text.count(html.escape(MARKUP)), 2)
        answer = self.ask('/fill_mask', text=MARKUP)
        self.assertEqual(answer.status, 400)
        self.assertNotIn('<script', answer.text)
        self.assertEqual(answer.text.count('</textarea>'), 1)
        answer = self.ask('/search', text='cats', words='"><script>')
        self.assertEqual(answer.status, 400)
        self.assertNotIn('<script', answer.text)

    def test_what_cannot_be_answered_is_said_beside_the_form(self):
        for path, given, message in (
            ('/search', {'text': ' '}, 'Write a question.'),
            ('/search', {'words': '1'}, 'Write a question.'),
            ('/search', {'text': 'a', 'words': 'nan'}, 'from 0 to 1'),
            ('/search', {'text': 'a', 'words': '2'}, 'from 0 to 1'),
            ('/search', {'text': 'a', 'answers': '0'}, 'from 1 to 50'),
            ('/search', {'text': 'a', 'answers': '9' * 5000}, 'from 1 to 50'),
            ('/fill_mask', {'text': 'no blank'}, 'Write [MASK] wherever'),
            ('/embed', {'text': 'one'}, 'Fill in "second text".'),
            ('/search', {'text': 'a' * 20_001}, 'has 20,001 characters; at'),
            ('/search', {f'x{i}': '' for i in range(21)}, 'too many fields'),
            ('/', {f'x{i}': '' for i in range(21)}, 'too many fields'),
        ):
            answer = self.ask(path, **given)
            self.assertEqual(answer.status, 400, given)
            self.assertIn(message, answer.visible)
        self.assertIn('class="error"', answer.text)

    def test_any_bytes_are_a_question(self):
        for text in (
            '%FF%FE', '%00', '%F0%9F', '%ED%A0%80', '%E2%80%AE+a', '%0D%0AX:1'
        ):  # fmt: skip
            for path in ('/search', '/embed', '/fill_mask'):
                answer = self.ask(f'{path}?text=a+[MASK]{text}&pair={text}b')
                self.assertIn(answer.status, (200, 400), (path, text))
        self.assertEqual(self.ask('/search?text=boats%FF').status, 200)
        self.assertEqual(self.ask('/', unknown='x').status, 200)

    def test_other_addresses_methods_and_names(self):
        for path in ('/classify', '/search/more', '/../etc/passwd', '/%3Cb%3E'):
            answer = self.ask(path)
            self.assertEqual(answer.status, 404)
            self.assertIn('There is no such page.', answer.visible)
        self.assertEqual(self.ask('//elsewhere/search').status, 404)
        self.assertEqual(self.ask(method='POST').status, 501)
        head = self.ask(method='HEAD')
        self.assertEqual((head.status, head.text), (200, ''))
        for host, status in (
            ('localhost', 200), ('LOCALHOST:80', 200), ('127.0.0.1:1', 200),
            ('[::1]', 200), ('[::1]:8000', 200), ('elsewhere.example', 421),
            ('elsewhere.example:8000', 421), ('localhost.example', 421),
            ('', 421),
        ):  # fmt: skip
            self.assertEqual(self.ask(host=host).status, status, host)

    def test_a_failure_is_no_traceback_for_the_reader(self):
        with (
            mock.patch.object(search, 'find', side_effect=OSError('secret')),
            mock.patch('traceback.print_exc') as printed,
        ):
            answer = self.ask('/search', text='cats')
        self.assertEqual(answer.status, 500)
        printed.assert_called_once()
        self.assertNotIn('secret', answer.text)
        self.assertIn('the terminal says why', answer.visible)
        self.assertEqual(self.ask('/search', text='cats').status, 200)

    def test_a_browser_shows_it(self):
        if CHROMIUM is None:
            self.skipTest('there is no Chromium')
        url = self.server.url + 'search?' + urllib.parse.urlencode(
            {'text': MARKUP, 'words': 1}
        )  # fmt: skip
        done = subprocess.run(
            [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu',
             f'--user-data-dir={self.folder}/chromium', '--dump-dom', url],
            capture_output=True, timeout=60, text=True,
        )  # fmt: skip
        self.assertIn('<section id="search">', done.stdout, done.stderr[-500:])
        self.assertNotIn('<script', done.stdout)
        self.assertNotIn('<b ', done.stdout)
        self.assertIn('&lt;script&gt;alert(1)', done.stdout)
        self.assertNotIn('Refused to', done.stderr)


class OtherSignaturesTest(absltest.TestCase):
    """What models with labels can do, of signatures that are told."""

    def demo(self, **outputs):
        def signature(values):
            def called(**given):
                self.given = {
                    name: value.numpy().tolist()
                    for name, value in given.items()
                }
                return {
                    name: mock.Mock(numpy=lambda value=value: value)
                    for name, value in values.items()
                }

            return called

        return demo.Demo(
            'model', counting.config('dot'),
            {name: signature(values) for name, values in outputs.items()},
        )  # fmt: skip

    def rows(self, found):
        return re.findall(
            '<tr><td>(.*?)</td><td class="number">(.*?)</td>', found
        )

    def test_classes_are_sorted(self):
        labels = np.array([[b'a', b'<b>', b'c']], object)
        shares = np.array([[0.2, 0.5, 0.3]])
        outputs = {'labels': labels, 'probabilities': shares}
        want = [('&lt;b&gt;', '50.0%'), ('c', '30.0%'), ('a', '20.0%')]
        made = self.demo(classify=outputs, classify_pairs=outputs)
        found = made.html('classify', {'text': 'x'})
        self.assertEqual(self.rows(found), want)
        self.assertEqual(self.given, {'texts': [b'x']})
        found = made.html('classify_pairs', {'text': 'x', 'pair': 'y'})
        self.assertEqual(self.rows(found), want)
        self.assertEqual(self.given, {'texts': [b'x'], 'pairs': [b'y']})
        self.assertIn('no search', self.demo(embed={}).html(None, {}))

    def test_numbers(self):
        made = self.demo(
            regress={'score': np.array([3.25])},
            regress_pairs={'score': np.array([-1.0])},
        )
        found = made.html('regress', {'text': 'x'})
        self.assertEqual(self.rows(found), [('score', '3.25')])
        found = made.html('regress_pairs', {'text': 'x', 'pair': 'y'})
        self.assertEqual(self.rows(found), [('score', '-1')])

    def test_next_words(self):
        made = self.demo(next_token={
            'tokens': np.array([[b'day', b'\xff']], object),
            'scores': np.log(np.array([[0.75, 0.125]])),
        })  # fmt: skip
        found = made.html('next_token', {'text': 'good'})
        self.assertEqual(
            self.rows(found), [('day', '75.0%'), ('\ufffd', '12.5%')]
        )

    def test_a_choice_of_lines(self):
        made = self.demo(choose={
            'choice': np.array([1]), 'probabilities': np.array([[0.1, 0.9]]),
        })  # fmt: skip
        given = {'text': 'x', 'choices': 'one\r\n \r\ntwo'}
        found = made.html('choose', given)
        self.assertEqual(self.rows(found), [('two', '90.0%'), ('one', '10.0%')])
        self.assertEqual(self.given['choices'], [[b'one', b'two']])
        with self.assertRaisesRegex(demo.BadRequest, '2 to 50 choices'):
            made.html('choose', {'text': 'x', 'choices': 'one'})

    def test_an_answer_in_a_text(self):
        made = self.demo(answer={
            'texts': np.array([[b'1', b'2']], object),
            'probabilities': np.array([[0.5, 0.25]]),
        })  # fmt: skip
        found = made.html('answer', {'text': 'who', 'pair': 'a text'})
        self.assertEqual(self.rows(found), [('1', '50.0%'), ('2', '25.0%')])
        self.assertEqual(self.given, {'texts': [b'who'], 'pairs': [b'a text']})

    def test_every_signature_of_an_answer_has_a_section(self):
        self.assertEqual(
            [section.name for section in demo.SECTIONS], list(demo._ANSWERS)
        )

    def test_a_long_passage_is_cut(self):
        found = page.passages([(1.0, 'a', 'b' * (page.SHOWN + 1))])
        self.assertIn(f'>{"b" * page.SHOWN} ...<', found)
        self.assertIn('Nothing was found.', page.passages([]))


class CommandTest(command.Checks, absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.model = self.folder / 'model' / '1'
        counting.save(self.model, 'cosine')

    def test_what_is_wrong_is_said_before_the_model_is_loaded(self):
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            taken.listen()
            port = taken.getsockname()[1]
            model = f'--model={self.model}'
            for arguments, message in (
                ((model, f'--port={port}'), f'port {port} is in use: name ano'),
                ((model, '--port=70000'), '--port=70000'),
                ((model, '--host=no.such.name.invalid'), '--host=no.such.name'),
                ((model, f'--index={self.folder}/no'), 'holds no index yet'),
                ((model, '--documents=a.jsonl'), 'there is no such file'),
                ((), '--model is missing: name an exported model, DIR/1'),
                ((f'--model={self.folder}',), 'is no version of an export'),
            ):
                done = command.run(demo, *arguments)
                self.assert_complains(done, message)

    def test_the_command_answers(self):
        (self.folder / 'text.txt').write_text('boats\n\ncats in a tree\n')
        with subprocess.Popen(
            [sys.executable, '-m', 'export.demo', f'--model={self.model}',
             f'--corpus=text:{self.folder}/text.txt', '--port=0'],
            stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            try:
                url = process.stdout.readline().split()[0]
                port = urllib.parse.urlsplit(url).port
                connection = http.client.HTTPConnection('127.0.0.1', port)
                connection.request('GET', '/search?text=cats&words=0')
                answer = Answer(connection.getresponse())
                connection.close()
                self.assertEqual(answer.status, 200)
                self.assertRegex(answer.visible, 'cats in a tree')
            finally:
                process.terminate()


class ServerTest(absltest.TestCase):
    def test_it_is_local_unless_told_otherwise(self):
        self.assertEqual(demo.Choices().host, '127.0.0.1')
        with demo.Server('localhost', 0) as server:
            self.assertTrue(server.local)
        with demo.Server('0.0.0.0', 0) as server:
            self.assertFalse(server.local)
        with self.assertRaises(commands.UsageError):
            demo.Server('256.0.0.1', 0)


if __name__ == '__main__':
    absltest.main()
