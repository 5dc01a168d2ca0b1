"""Files with wrong contents: what their readers say, and of which line."""

import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

from absl.testing import parameterized

from infoword_tf import errors
from infoword_tf.data import glue_layout
from infoword_tf.evaluation import bitext, retrieval, sts
from infoword_tf.inference import wordvectors
from tasks import probe, squad_data, tag_data, words
from tests import places
from tests.tasks.squad_files import asked, contents

LETTERS = 'the dog saw the cat'


def file(read: Callable[[pathlib.Path], Any], name: str) -> Callable[..., Any]:
    """Returns a reader of one file of a folder."""
    return lambda folder: read(folder / name)


def questions(*changes: dict[str, Any]) -> str:
    """Returns a file of SQuAD whose questions were changed."""
    both = [{**asked(LETTERS, 'dog'), **change} for change in changes]
    return json.dumps(contents((LETTERS, *both)))


def aligned(folder: pathlib.Path) -> Any:
    return bitext.aligned(folder / 'a.de', folder / 'b.en')


def lines(first: str, second: str) -> dict[str, str]:
    """Returns two files with a letter a line; - is an empty line."""
    return {
        name: ''.join(f'{x}\n' for x in text.replace('-', ' '))
        for name, text in (('a.de', first), ('b.en', second))
    }


def probed(folder: pathlib.Path) -> Any:
    return probe.read(probe.ProbeChoices(train=str(folder)))


def rte(folder: pathlib.Path) -> Any:
    return glue_layout.read('rte', str(folder), 'dev')


def tagged(**columns: Any) -> Callable[[pathlib.Path], Any]:
    return lambda path: tag_data.read(str(path), tag_data.TagColumns(**columns))


BEIR = {
    'corpus.jsonl': '{"_id": "a", "text": "x"}\n{"_id": "b", "text": "y"}\n'
                    '{"_id": "c", "text": "z"}',
    'queries.jsonl': '{"_id": "q1", "text": "x"}\n{"_id": "q2", "text": "y"}',
    'qrels/test.tsv': 'query-id\tcorpus-id\tscore\nq1\ta\t2\nq2\tc\t1',
}  # fmt: skip


def beir(name: str, line: int | None, text: str | None = None) -> dict:
    """Returns a BEIR folder, a line or the whole (None) of a file changed."""
    rows = BEIR[name].split('\n')
    if line is None:
        rows = [] if text is None else [text]
    else:
        rows[line - 1] = text
    folder = {**BEIR, name: '\n'.join(rows).encode('latin1')}
    if line is None and text is None:
        del folder[name]
    return folder


PAIRS = [f'm\tx\t2012\t{i}\t{i}.0\ta {i}\tb {i}' for i in range(5)]
SQUAD, STS, WORDS, BEIR_READ = (
    squad_data.read, sts.read, words.read, retrieval.beir_task
)  # fmt: skip
READERS = {  # (read, file): (contents, id, *values)
    (SQUAD, 'squad.json'): [
        ('', 'squad_no_json', 'line 1, column 1'),
        ('[]', 'squad_bad_field', "'data'", 'a list'),
        ('{"data": [\n{"paragraphs": []},\n{]}', 'squad_no_json',
         'line 3, column 2'),
        ('{"data": [] ', 'squad_no_json', 'line 1'),
        ('{"version": "1.1"}', 'squad_bad_field', "'data'", 'a list'),
        ('{"data": []}', 'squad_no_question'),
        ('{} x', 'squad_no_json', 'SQuAD'),
        ('{"data": [1]}', 'squad_bad_field', 'data[0]', "'paragraphs'"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', 'squad_bad_field',
         'paragraphs[0]', "'context'", 'a string'),
        (questions({'id': 3}), 'squad_bad_field', 'qas[0]', "'id'", 'a string'),
        (questions({'question': None}), 'squad_bad_field', "'question'"),
        (questions({'answers': {}}), 'squad_bad_field', "'answers'", 'a list'),
        (questions({'answers': []}), 'squad_unanswered', '--version2'),
        (questions({'answers': [{'text': 'dog'}]}), 'squad_bad_field',
         "'answer_start'", 'a whole'),
        (questions({'answers': ['dog']}), 'squad_bad_field', 'answers[0]',
         "'text'", 'a string'),
        (questions({}, {}), 'squad_id_twice', 'qas[1]', "'q'"),
        (questions({}, {'id': 'b', 'is_impossible': True, 'answers': []}),
         'squad_unanswered', 'qas[1]', '--version2'),
        (b'{"data": "\xff"}', 'squad_not_utf8', 'byte 10'),
        (None, None, 'no such file'),
    ],
    (functools.partial(SQUAD, version2=True), 'squad.json'): [
        (questions({'answers': [], 'is_impossible': False}),
         'squad_answer_missing', 'is_impossible'),
    ],
    (STS, 'pairs.tsv'): [
        ('a\tb\n', 'sts_bad_line', 'line 1'),
        ('\n'.join(PAIRS[:2]), 'sts_too_few_pairs', '2 pairs'),
        ('\n'.join([*PAIRS, PAIRS[0].replace('0.0', 'nan')]), 'sts_bad_line',
         'line 6', "'m", 'nan'),
        ('id\tsentence1\tsentence2\n0\ta\tb', 'sts_lacks_columns', 'score'),
        ('pair\tsentence_A\n0\ta', 'sts_lacks_columns',
         'relatedness_score and sentence_B'),
        ('a\tb\t3', 'sts_bad_line', 'genre, file,', 'sentence1',
         'or relatedness_score'),
        (None, None, 'no such file'),
    ],
    (WORDS, 'pairs.txt'): [
        ('a\tb\n', 'words_bad_line', 'line 1', 'two words and a score'),
        ('a\tb\t1\na\tb\tc\n', 'words_bad_line', 'line 2', 'two words'),
        ('# x\n\na\tb\tc\na\tb\t1\na\t2\n', 'words_bad_line', 'line 5'),
        (': x\na b c\n', 'words_bad_line', 'line 2', 'four words'),
        ('', 'words_nothing_to_read'),
    ],
    (tagged(label=1), 'short.conll'): [
        ('a O\n\nb\n', 'tag_column_missing', 'line 3', '1'),
    ],
    (tagged(), 'none.conll'): [('\n\n', 'no_tagged_text')],
    (tagged(names=('O', 'B-PER')), 'words.jsonl'): [
        ('{"tokens": ["a"], "tags": ["O", "O"]}', 'unequal_tags', 'line 1',
         '1 words', '2 labels'),
        ('{"tokens": [], "tags": []}', 'text_without_words', 'line 1'),
        ('{"tokens": "a b", "tags": []}', 'no_list_of_words', 'tokens', 'a b'),
        ('{"tokens": ["a"], "tags": [2]}', 'label_without_name', "'2'",
         '2 --names', 'line 1'),
    ],
    (wordvectors.read, 'v.txt'): [
        ('', 'word_vectors_header', 'line 1'),
        ('cat 1 2\n', 'word_vectors_header', 'line 1', 'cat 1 2'),
        ('2 2\ncat 1 2\ndog 1\n', 'word_vectors_line', 'line 3', '2', "'dog"),
        ('1 2\ncat 1 x\n', 'word_vectors_line', 'line 2', '2'),
        ('1 2\ncat 1 nan\n', 'word_vectors_not_finite', 'line 2'),
        ('2 2\ncat 1 2\n', 'word_vectors_count', 'line 2', '2 words',
         'there are 1'),
        ('1 1\ncat 1\ndog 2\n', 'word_vectors_count', 'line 3', '1 words',
         'more'),
        (None, None, 'no such file'),
    ],
    (bitext.sentences_of, 'a.de'): [
        ('ja\nnein\nGrüße\n'.encode('latin1'), None, 'line 3', 'UTF-8'),
    ],
}  # fmt: skip
FOLDERS = {  # read: (files, id, *values)
    BEIR_READ: [
        (beir('corpus.jsonl', 2, '{"_id": "b", "text"'), None, 'line 2: no JS'),
        (beir('corpus.jsonl', 2, '\xff'), None, 'line 2 is not UTF-8'),
        (beir('corpus.jsonl', 3, '["c"]'), None, 'line 3', 'a JSON object'),
        (beir('corpus.jsonl', 1, '{"_id": "a"}'), 'beir_no_string', 'line 1',
         'text'),
        (beir('corpus.jsonl', 1, '{"_id": 1, "text": ""}'), 'beir_no_string',
         'line 1', '_id'),
        (beir('corpus.jsonl', 1, '{"_id": "a", "text": "", "title": 1}'),
         'beir_no_string', 'line 1', 'title'),
        (beir('corpus.jsonl', 3, '{"_id": "a", "text": ""}'), 'beir_id_twice',
         "line 3: _id 'a'", 'line 1'),
        (beir('queries.jsonl', 2, '{"_id": "q1", "text": ""}'),
         'beir_id_twice', "queries.jsonl, line 2: _id 'q1'", 'line 1'),
        (beir('qrels/test.tsv', 2, 'q9\ta\t1'), 'beir_unknown_query',
         'test.tsv, line 2', "'q9'"),
        (beir('qrels/test.tsv', 2, 'q1 a 1'), 'beir_no_grade', 'line 2'),
        (beir('qrels/test.tsv', 2, 'q1\t0\ta\t1'), 'beir_no_grade', 'line 2'),
        (beir('qrels/test.tsv', 2, 'q1\ta\tyes'), 'beir_no_grade', 'line 2'),
        (beir('qrels/test.tsv', 3, 'q1\ta\t1'), 'beir_two_grades', 'line 3',
         "'a'"),
        (beir('corpus.jsonl', None), None, 'it has no corpus.jsonl'),
        (beir('queries.jsonl', None), None, 'it has no queries.jsonl'),
        (beir('qrels/test.tsv', None), None, 'no qrels/test.tsv', 'where'),
        ({**beir('qrels/test.tsv', None), 'qrels/dev.tsv': ''}, None,
         'its splits are dev'),
        (beir('corpus.jsonl', None, ''), 'beir_no_document', 'corpus.jsonl'),
        (beir('qrels/test.tsv', None, ''), 'beir_no_judgement', 'test.tsv'),
        (beir('qrels/test.tsv', None, 'q1\tx\t1\nq2\ty\t1\n'),
         'beir_other_documents', 'corpus.jsonl', 'qrels/test.tsv'),
    ],
    STS: [
        ({}, None, 'a folder without STS'),
        *(({'STS.input.x.txt': 'a\tb\n' * 3, **gold}, *complaint)
          for gold, *complaint in (
              ({'STS.gs.x.txt': '1\n2\n'}, 'sts_unequal_lines',
               'STS.input.x.txt has 3', 'STS.gs.x.txt has 2'),
              ({'STS.gs.x.txt': '1\n2\nmuch\n'}, 'sts_no_score',
               'STS.gs.x.txt, line 3', "'much'"),
              ({'STS.gs.x.txt': '1\n2\n\n'}, 'sts_too_few_pairs',
               'STS.input.x.txt has 2 pairs'),
              ({}, None, 'STS.input.x.txt has no STS.gs.x.txt'),
          )),
        ({'STS.input.x.txt': 'a\tb\nab\nc\td\n', 'STS.gs.x.txt': '1\n2\n3\n'},
         'sts_no_two_sentences', 'STS.input.x.txt, line 2', "'ab"),
    ],
    probed: [
        ({}, None, 'NAME.pos and NAME.neg', 'TREC_10.label'),
        ({'a.pos': 'x\n'}, None, 'NAME.pos and NAME.neg'),
        ({'a.pos': 'x\n', 'a.neg': 'y\n', 'b.neg': 'y\n'}, None, 'one of each'),
        ({'a.pos': '\n', 'a.neg': ''}, 'probe_no_texts'),
        ({'train_5500.label': 'DESC:def What ?\n',
          'TREC_10.label': 'DESC:def What ?\n\nHow so ?\n'},
         'question_without_label', 'TREC_10.label, line 3', "'How so"),
        ({'train_5500.label': 'HUM:ind\n', 'TREC_10.label': ''},
         'question_without_label', 'train_5500.label, line 1'),
    ],
    aligned: [
        # The first line that is odd on one side alone.
        (lines('aabc', 'xyz'), None, 'a.de has 4 lines', 'b.en 3', 'line 2 of',
         'a.de, which repeats'),
        (lines('aabbc', 'xxyz'), None, 'line 4 of', 'a.de, which repeats'),
        (lines('abcd', 'x-z'), None, 'line 2 of', 'b.en, which is empty'),
        (lines('a', 'xyyz'), None, 'line 2 of', 'b.en has no neighbour'),
        (lines('abc', 'xyzz'), None, 'line 4 of', 'b.en has no neighbour'),
        (lines('a-c', 'xyz'), 'bitext_empty_line', 'a.de, line 2'),
        (lines('abc', 'x--'), 'bitext_empty_line', 'b.en, line 2'),
        (lines('--', 'xy'), 'bitext_no_sentence', 'a.de'),
    ],
    file(tagged(), 'saved'): [
        ({'saved/data-00000-of-00001.arrow': ''}, 'unknown_table_kind',
         'saved', 'data-*.arrow'),
    ],
    file(bitext.read, 'nothing'): [({}, None, 'no such folder')],
    bitext.read: [
        ({}, 'no_translations_into_english',
         'tatoeba.deu-eng.deu and tatoeba.deu-eng.eng'),
        ({'v1.deu-eng.deu': 'Ja\n'}, None,
         'v1.deu-eng.deu has no v1.deu-eng.eng'),
        ({f'v{i}.deu-eng.{x}': 'x\n' for i in (1, 2) for x in ('deu', 'eng')},
         'bitext_language_twice', 'deu', 'v2.deu-eng'),
    ],
    rte: [
        ({}, None, 'RTE/dev.tsv', '--data_dir'),
        ({'RTE/dev.tsv': 'index\tsentence1\tsentence2\tlabel\n'
                         '0\ta\tb\tneutral'},
         None, 'RTE/dev.tsv, line 2', "'neutral'"),
    ],
}  # fmt: skip
# What reads a folder, its files by name, the id of the error (None where it has
# none, or is of another room), and what the error names.
CASES = [
    (
        file(read, name), {} if text is None else {name: text}, id,
        (name, *values),
    )
    for (read, name), rows in READERS.items()
    for text, id, *values in rows
] + [
    (read, files, id, tuple(values))
    for read, rows in FOLDERS.items()
    for files, id, *values in rows
]  # fmt: skip


class WrongFilesTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(*CASES)
    def test_what_is_said(self, read, files, id, values):
        places.write(self.folder, files)
        kinds = OSError, ValueError, errors.UsageError
        with self.assertRaises(kinds) as raised:
            read(self.folder)
        error = raised.exception
        self.assertIn(id, (None, getattr(error, 'id', None)))
        for value in values:
            self.assertIn(value, str(error))
