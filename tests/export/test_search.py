"""The command on a small corpus: what it makes, finds, and refuses."""

import json
import subprocess
import sys
from unittest import mock

import numpy as np
from absl.testing import absltest

from export import index as indexes
from export import search
from infoword_tf import commands, errors
from infoword_tf.config import DenseConfig
from infoword_tf.critics.late import LateConfig
from infoword_tf.data.documents import Document, passages
from infoword_tf.evaluation import ranking
from tests import places
from tests.export import workdirs
from tests.tasks import command, counting


def many(count, name='w'):
    return ' '.join([name] * count)


class PassagesTest(absltest.TestCase):
    def test_whole_sentences_of_about_a_hundred_words(self):
        for sentences, expected in (
            ((many(60, 'a'), many(40, 'b'), 'c'),
             [f'{many(60, "a")} {many(40, "b")}', 'c']),
            ((many(130, 'd'), 'e e'), [many(130, 'd'), 'e e']),
            (('one two',), ['one two']),
            ((), []),
        ):  # fmt: skip
            self.assertEqual([*passages(Document(sentences, ''))], expected)


@mock.patch.object(commands, 'BAR_EVERY', 0.0)  # what is encoded is shown
class CommandTest(places.Folder, command.Checks, absltest.TestCase):
    def run_it(self, *arguments, stdin='', status=0):
        done = command.run(search, *arguments, words='queries', stdin=stdin)
        self.assertEqual(done.status, status, done.err)
        return done

    def model(self, name='model', similarity='cosine', version=1):
        """A version that differs from all others."""
        path = self.folder / name / str(version)
        counting.save(path, similarity)
        (path / 'note').write_text(f'{name} {version}')
        return path

    def text(self, text):
        (self.folder / 'text.txt').write_text(text)
        return f'--corpus=text:{self.folder}/text.txt'

    def test_keras_is_not_imported(self):
        """In a process of its own: this one has imported all."""
        program = """if True:
            import pathlib, sys
            from infoword_tf.evaluation import models
            from tasks import retrieval
            embed, _ = models.exported(pathlib.Path(sys.argv[1]), 64)
            print(embed(['zebras'], None).shape)
            print(sorted({'keras', 'jax', 'tensorflow_text'} & {*sys.modules}))
        """
        done = subprocess.run(
            [sys.executable, '-c', program, workdirs.exported()],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.stdout, '(1, 64)\n[]\n', done.stderr)

    def test_from_python(self):
        _, _, corpus = self.text('boats\n\ncats cats\n').partition('=')
        flags = {'model': str(self.model()), 'corpus': corpus}
        ask = search.opened(**flags, top_k=1)
        for query in ('boats', 'cats cats'):
            ((score, passage),) = ask(query)
            self.assertEqual(passage.text, query)
            self.assertAlmostEqual(score, 1.0, places=6)
            done = self.run_it(*commands.typed(flags), '--top_k=1', query)
            self.assertEqual(
                done.out, search.answer(query, [(score, passage)]) + '\n'
            )
        actual = search.opened(**flags, hybrid=True)('cats cats')
        self.assertEqual([x.text for _, x in actual], ['cats cats', 'boats'])
        done = self.run_it(*commands.typed(flags), '--hybrid', 'cats cats')
        self.assertEqual(done.out, search.answer('cats cats', actual) + '\n')
        for more, share in (
            ({'hybrid_share': 0.0}, 0.0), ({'hybrid_share': 0.3}, 0.3),
            ({'hybrid_share': 1.0}, 1.0), ({'hybrid': True}, ranking.SHARE),
            ({}, 0.0),
        ):  # fmt: skip
            with mock.patch.object(
                indexes.Index, 'find', autospec=True, return_value=[]
            ) as find:
                search.opened(**flags, **more)('cats')
            self.assertEqual(find.call_args.kwargs['words'], share)
        # Of a call, as the page makes it.
        ask = search.opened(**flags)
        self.assertEqual(ask('cats cats', 0.5), actual)
        self.assertLen(ask('cats cats', top_k=1), 1)
        with self.assertRaisesRegex(errors.UsageError, '--model is missing'):
            search.opened(corpus=corpus)

    def test_first_numbers_of_vectors(self):
        """By the index of whole vectors, which stays as it is."""
        words = 'boats cats dogs trees rivers sails names'.split()
        model = self.model(similarity='dot')
        flags = f'--model={model}', self.text('\n\n'.join(words)), '--top_k=9'
        vectors = counting.embed(words).numpy()
        dims = int(np.median(vectors.argmax(axis=1))) + 1  # the half are left
        self.run_it(*flags, 'boats')
        [folder] = model.parent.glob('search')
        before = [(x.name, x.stat().st_mtime_ns) for x in folder.glob('*')]
        done = self.run_it(*flags, f'--dims={dims}', ' '.join(words))
        scores = vectors[:, :dims] @ vectors.sum(axis=0)[:dims]
        for word, score in zip(words, scores, strict=True):
            self.assertRegex(done.out, rf'\n  {score:.3f}  .*\n +{word}\n')
        after = [(x.name, x.stat().st_mtime_ns) for x in folder.glob('*')]
        self.assertCountEqual(before, after)
        done = self.run_it(*flags, '--dims=65', 'boats', status=1)
        self.assert_refused(done, 'dims_over_width', '--dims=65', '64')

    def table(self, name, *rows):
        path = self.folder / name
        names = '_id', 'title', 'text'
        lines = (json.dumps(dict(zip(names, x, strict=True))) for x in rows)
        path.write_text('\n'.join(lines))
        return f'--documents={path}', '--id=_id', '--text=title,text'

    def test_documents_of_a_table_by_name(self):
        model = self.model()
        flags = f'--model={model}', f'--index={self.folder}/own'
        first = self.table(
            'first.jsonl', ('a', 'Boats', 'on a river.'),
            ('b', 'Cats', 'in a tree.'), ('c', '', 'Nothing else.'),
        )  # fmt: skip
        done = self.run_it(*flags, *first, 'cats in a tree.')
        self.assertRegex(
            done.out, r'^"cats in a tree."\n  1\.000  b\n +Cats in a tree\.\n'
        )
        # The table has changed: it is the same text, and what is new is known.
        first = self.table(
            'first.jsonl', ('c', '', 'Nothing else.'),
            ('b', 'Dogs', 'in a tree.'),
        )  # fmt: skip
        done = self.run_it(*flags, *first, 'dogs in a tree.')
        self.assertIn(' 1/1 ', done.err)
        self.assertRegex(done.out, r'\n  1\.000  b\n +Dogs in a tree\.\n')
        # Of what the table lacks nothing is found; words are of the new text.
        done = self.run_it(*flags, 'boats', 'nothing else.', '--top_k=3')
        self.assertNotIn('passages', done.err)
        self.assertNotIn('river', done.out)
        self.assertRegex(
            done.out, r'"nothing else."\n  1\.000  c\n +Nothing else\.\n'
        )
        done = self.run_it(*flags, '--hybrid', 'dogs', '--top_k=1')
        self.assertRegex(done.out, r'\n +Dogs in a tree\.\n')
        self.assertEqual(
            [p.name for p in model.parent.iterdir()], ['1'],
            'nothing lies beside the model',
        )  # fmt: skip

    def test_documents_without_names_are_lines(self):
        path = self.folder / 'texts.tsv'
        path.write_text('text\nboats\ncats\n')
        flags = f'--model={self.model(similarity="dot")}', f'--documents={path}'
        done = self.run_it(*flags, 'cats', '--top_k=1')
        self.assertEqual(
            done.out, f'"cats"\n  1.000  {path}:3\n         cats\n'
        )

    def test_an_index_that_is_not_what_was_asked_for(self):
        idx = f'--index={self.folder}/own'
        first, second = (
            self.table(f'{name}.jsonl', ('a', '', f'{name} boats'))
            for name in ('first', 'second')
        )
        model, other = (f'--model={self.model(x)}' for x in ('one', 'two'))
        self.run_it(model, idx, *first, 'boats')
        files = {p: p.read_bytes() for p in (self.folder / 'own').rglob('*')
                 if p.is_file()}  # fmt: skip
        (self.folder / 'notes').mkdir()
        (self.folder / 'notes' / 'mine.txt').write_text('mine')
        twice = self.table('twice.jsonl', *2 * [('a', '', 'boats')])
        unnamed = self.table('unnamed.jsonl', (' ', '', 'boats'))
        for arguments, message in (
            ((other, idx), 'is of another model, .*: name another folder'),
            ((other, idx, *first), 'is of another model'),
            ((model, idx, *second), 'is of another corpus, .*first.jsonl'),
            ((model, *twice),
             'twice.jsonl, line 2: the _id .a. is that of line 1 too'),
            ((model, *unnamed),
             'line 1: the column ._id., which names documents, is empty'),
            ((model, f'--index={self.folder}/no'), 'holds no index yet'),
            ((model, f'--index={self.folder}/notes', *first), 'is no index of'),
            ((model, *first, '--corpus=pydocs'), 'give --documents or --corp'),
            ((model, '--id=a'), '--id is for --documents; leave it out'),
            ((model, first[0], '--text=a'), "has no column 'a'"),
            ((model, first[0], '--id=a'), "has no column 'a'"),
            ((model, '--documents=tfds:a'), 'is no file; name a data set'),
            ((model, '--documents=a.jsonl'), 'there is no such file'),
        ):  # fmt: skip
            done = self.run_it(*arguments, 'boats', status=1)
            self.assert_complains(done, message)
        for path, content in files.items():
            self.assertEqual(path.read_bytes(), content)
        # That beside the model is made anew for another text.
        for text in (first, second):
            done = self.run_it(model, *text, 'boats')
            self.assertIn('passages', done.err)

    def critics(self, name, critic):
        """An export that has all critics but `cosine`."""
        path = self.folder / name / '1'
        counting.save_critics(path)
        counting.write_config(
            path, 'cosine', critic=critic,
            late=LateConfig((DenseConfig(counting.BUCKETS, 'linear'),)),
        )  # fmt: skip
        return f'--model={path}'

    def test_other_critics(self):
        """The passages a and c, in the order of the last critic."""
        model, cross = (self.critics(x, x) for x in ('late', 'cross'))
        rerank = f'--rerank={self.folder}/cross/1'
        passages, query = counting.PASSAGES, counting.QUERY
        text = self.text('\n\n'.join(passages.values()))
        for number, (critic, names, *more) in enumerate((
            ('late', 'ca'), ('late', 'ca', '--dims=63', '--first=bm25'),
            ('lexical', 'ac', '--critic=lexical'), ('cross', 'ac', rerank),
            ('cross', 'c', rerank, '--rerank_top=1', '--top_k=1'),
            ('late', 'ca', f'--rerank={self.folder}/late/1',
             '--critic=lexical'),
        )):  # fmt: skip
            scores = dict(zip(passages, counting.SCORES[critic], strict=True))
            expected = {passages[name]: scores[name] for name in names}
            done = self.run_it(
                model, text, f'--index={self.folder}/{number}', '--top_k=2',
                *more, query,
            )  # fmt: skip
            lines = done.out.splitlines()[1:]
            actual = {
                text.strip(): round(float(x.split()[0]), 1)
                for x, text in zip(lines[::2], lines[1::2], strict=True)
            }
            self.assertEqual([*actual.items()], [*expected.items()])
        plain = self.model('plain').parent
        first = f'--index={self.folder}/0'
        for arguments, error, value in (
            ((cross,), 'cross_without_index', '--rerank'),
            ((model, first, '--critic=lexical'), 'index_of_other', 'late'),
            ((model, '--critic=lexical', '--dims=3'), 'dims_without_vectors',
             'lexical'),
            ((model, '--rerank=no/1'), 'stage_of_no_model', 'no/1'),
            ((model, f'--rerank={plain}'), None, 'numbered folder'),
            ((f'--model={plain}/1', '--critic=late'), 'export_without_embed',
             'embed_tokens'),
        ):  # fmt: skip
            done = self.run_it(text, *arguments, query, status=1)
            self.assert_refused(done, error, value)
        with mock.patch.object(search, 'EXACT', 2):
            done = self.run_it(model, text, query, status=1)
            self.assert_refused(done, 'late_without_first', 'there are 4')

    def test_another_version_has_an_index_of_its_own(self):
        flags = self.text('boats\n\nboats boats cats\n'), 'boats'
        paths = [self.model(version=version) for version in (1, 2)]
        for number, is_written in ((0, True), (0, False), (1, True), (0, True)):
            done = self.run_it(f'--model={paths[number]}', *flags)
            self.assertEqual('passages' in done.err, is_written, number)
        # Queries may come from standard input; an empty one has no answer.
        done = self.run_it(f'--model={paths[0]}', *flags, ' ')
        self.assertEndsWith(done.out, '\nan empty query has no answer\n')
        done = self.run_it(
            f'--model={paths[0]}', flags[0], stdin='boats\ncats\n'
        )
        self.assertLen([x for x in done.out.splitlines() if x[0] == '"'], 2)

    def test_vectors_are_compared_as_the_config_says(self):
        """Prefers the longer of vectors that point elsewhere by `dot` alone."""
        corpus = self.text('boats\n\nboats boats cats\n')
        for similarity, expected in (
            ('cosine', ['1.000', 'boats', '0.894', 'boats boats cats']),
            ('dot', ['2.000', 'boats boats cats', '1.000', 'boats']),
        ):
            model = self.model(similarity, similarity)
            done = self.run_it(f'--model={model}', 'boats', corpus)
            _, *lines = map(str.strip, done.out.splitlines())
            lines[::2] = [line.split()[0] for line in lines[::2]]
            self.assertEqual(lines, expected)
