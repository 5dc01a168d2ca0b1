"""Sentences about what a user can mend: what, where, what to do."""

import contextlib
import io
import logging
import sys
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from infoword_tf import commands, errors, prepare, show
from infoword_tf.evaluation import bm25
from tests import languages, places, quick, runs
from tests.refused import refused
from tests.runs import run
from tests.test_sentence_runs import write_pairs
from tests.test_show import LABELLED

FILES = {
    'twice.txt': b'[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n',
    'good.txt': b'One fish two fish.\nRed fish blue fish.\n\n' * 50,
    'one.tsv': b'score\tsentence1\tsentence2\n1\ta\tb',
    'nan.tsv': b'score\tsentence1\tsentence2\n1\ta\tb\nnan\tc\td\n2\te\tf',
    'columns.tsv': b'score\tsentence1\n1\ta\n',
    'beir/corpus.jsonl': b'{"_id": "1", "text": "a"}\n',
    'beir/queries.jsonl': b'{"_id": "1", "text": "a"}\n',
    'split/corpus.jsonl': b'{"_id": "1", "text": "a"}\n',
    'split/queries.jsonl': b'{"_id": "1", "text": "a"}\n',
    'split/qrels/dev.tsv': b'query-id\tcorpus-id\tscore\n1\t1\t1\n',
}
# In command lines $ is the folder of all files, and these are short for more.
SHORT = {
    'DE_EN': '--corpus=de=text:$text.de --corpus=en=text:$text.en',
    'ALIGNED': '--parallel=$two.{de,en}',
    'PAIRS': '--objectives=simcse --pairs=$a.csv',
    'LATE': '--simcse.critic=late',
    'JUDGED': '--objectives=simcse:0,soft_margin:1 --pairs=$a.csv',
}
# By name: a command line, the id of the error, or its class where it is one of
# Python's, and what the sentence names.
LINES = (
    # Flags.
    ('unknown_flag', 'train --stepps=3', 'bad_flag', 'stepps'),
    ('old_name', 'train --critic=dot', 'bad_flag', 'critic'),
    ('bounds', 'train --dim.temperature=0', 'bad_flag', 'dim.temperature'),
    ('choices', 'train --strategy=many', 'bad_flag', 'mirrored'),
    ('word', 'train tiny', 'no_flag', 'tiny'),
    ('workdir', 'train --workdir=', 'missing_flag', '--workdir'),
    # What a run is.
    ('freeze', 'train --freeze', 'freeze_without_init', '--freeze', '--init'),
    ('adapter', 'train --adapter=lora', 'adapter_without_init',
     '--adapter=lora'),
    ('adapter_frozen', 'train --adapter=lora --init=$run --freeze',
     'adapter_and_freeze', '--adapter=lora', '--freeze'),
    ('adapter_setting', 'train --adapter.rank=4 --init=$run',
     'setting_without_adapter', '--adapter.rank', '--adapter=lora'),
    ('adapter_rank', 'train --adapter=lora --adapter.rank=65 --init=$run',
     'adapter_rank_above_width', '--adapter.rank=65', '64'),
    ('adapter_of_average', 'train --adapter=lora --init=$run PAIRS '
     '--simcse.queue=8 --simcse.momentum=0.9', 'adapter_of_average',
     '--adapter=lora', '--objectives=simcse'),
    ('vocab_of_init', 'train --init=$run --vocab_size=9', 'init_decides_vocab',
     '--vocab_size', '--init='),
    ('minutes_and_steps', 'train --minutes=3 --steps=7', 'several_lengths',
     '--minutes=3', '--steps=7'),
    ('patience', 'train --patience_evals=2', 'patience_without_best',
     '--patience_evals=2', '--best'),
    ('rewinds', 'train --rewinds=2', 'rewinds_of_stop', '--rewinds=2',
     '--on_nonfinite=rewind'),
    ('gone', 'train --data_service=cpu1:8600', 'flag_gone',
     '--data_service', 'docs/scale.md'),
    ('remat', 'train --objectives=cbow --remat', 'encoder_without_remat',
     'lookup', '--microbatch'),
    ('init', 'train --init=/nowhere', FileNotFoundError, '/nowhere'),
    # Rows and their settings.
    ('row', 'train --objectives=berta', 'unknown_row', "'berta'", 'bert_nce'),
    ('labelled', 'train --objectives=label', 'labelled_objectives',
     'tasks.classify'),
    ('layer', 'train --objectives=xlco ALIGNED --xlco.layer=3',
     'xlco_unknown_layer', '--xlco.layer=3', '1'),
    # Encoders and sizes.
    ('size', 'train --size=huge', 'unknown_size', 'tiny, mini, small'),
    # Text and vocabularies.
    ('no_files', 'train --corpus=text:/nowhere/*.txt', 'no_file_matches',
     '/nowhere/'),
    ('no_corpus', 'languages --corpus=', 'missing_corpus', '--corpus'),
    ('shuffle_block', 'train --objectives=nsp --shuffle_block=9',
     'shuffle_block_unread', '--shuffle_block=9', 'nsp'),
    ('vocab', 'train --vocab=/nowhere/vocab.txt', FileNotFoundError,
     '/nowhere/vocab.txt'),
    ('other_tokenizer', 'train --vocab=$twice.txt --tokenizer=bytes',
     'other_tokenizer', '--tokenizer=bytes', 'wordpiece'),
    ('vocab_and_size', 'train --vocab=$twice.txt --vocab_size=9',
     'vocab_and_size', '--vocab_size=9', 'twice.txt'),
    ('case_of_vocab', 'train --vocab=$x.model --lower_case',
     'vocab_decides_case', '--lower_case', 'x.model'),
    # Languages and translations.
    ('no_translations', 'languages --objectives=tlm', 'missing_translations',
     'tlm', '--parallel'),
    ('translations_unread', 'languages --objectives=mlm ALIGNED',
     'translations_unread', '--parallel', '--objectives=mlm', 'tlm, xlco'),
    ('heldout_of_whom', 'languages DE_EN --heldout=x', 'heldout_language',
     'de, en'),
    ('heldout_of_another', 'languages DE_EN --heldout=fr=$text.fr',
     'heldout_language', 'fr', 'de, en'),
    ('exponent', 'train --language_exponent=1', 'exponent_of_one_language',
     '--language_exponent=1'),
    ('weight_of_another', 'languages DE_EN --corpus_weights=de=2,fr=1',
     'weight_of_no_corpus', '--corpus_weights=fr=1', 'de, en'),
    ('weight_of_none', 'train --corpus_weights=en=2', 'weight_of_no_corpus',
     '--corpus_weights=en=2', 'none', '--corpus=web='),
    ('weights_of_all', 'languages DE_EN --corpus_weights=en=2',
     'corpus_without_weight', 'de'),
    ('weight_x', 'languages DE_EN --corpus_weights=en=2,de=x',
     'bad_corpus_weight', '--corpus_weights=de=x'),
    ('weight_inf', 'languages DE_EN --corpus_weights=en=2,de=inf',
     'bad_corpus_weight', '--corpus_weights=de=inf'),
    ('weights_or_exponent', 'languages DE_EN --corpus_weights=en=2,de=1 '
     '--language_exponent=1', 'weights_replace_flag', '--language_exponent'),
    ('weights_or_parallel', 'languages DE_EN --corpus_weights=en=2,de=1 '
     '--objectives=mlm:1,tlm:1 ALIGNED', 'weights_replace_flag', '--parallel'),
    # Pairs.
    ('epochs_and_steps', 'train PAIRS --epochs=1.5 --steps=7',
     'several_lengths', '--steps=7', '--epochs=1.5'),
    ('epochs_of_text', 'train --epochs=2', 'epochs_of_text', '--epochs=2',
     '--pairs'),
    ('sum_without_pairs', 'train --objectives=pairs', 'sum_without_pairs',
     '--objectives=pairs'),
    ('pairs_unread', 'train --objectives=mlm --pairs=$a.csv', 'pairs_unread',
     '--objectives=mlm', 'simcse'),
    ('columns_alone', 'train --pair_columns=a,b', 'flag_without_pairs',
     '--pair_columns', '--pairs'),
    ('negatives_alone', 'train --pair_negatives=0', 'flag_without_pairs',
     '--pair_negatives'),
    ('weights_alone', 'train --pair_weights=1,2', 'flag_without_pairs',
     '--pair_weights'),
    ('cross_alone', 'train --objectives=simcse --simcse.critic=cross',
     'cross_without_pairs', 'simcse.critic=cross', '--pairs'),
    ('sides_alone', 'train --objectives=simcse --sentences.query_length=9',
     'sides_without_pairs', '--sentences.query_length', '--pairs'),
    ('expand_by_what', 'train PAIRS LATE --sentences.expand',
     'expand_to_no_length', '--sentences.query_length'),
    *(
        (f'markers_{markers}', f'train PAIRS --sentences.markers={markers}',
         'markers_are_not_two', f'--sentences.markers={markers}')
        for markers in ('[MASK]', '[MASK],', '[MASK],[CLS],[SEP]')
    ),
    ('markers_of_another', 'train PAIRS --sentences.markers=[Q],[D]',
     'unknown_marker', "'[Q]'"),
    ('query_beyond', 'train PAIRS --sentences.query_length=32 --seq_len=16',
     'query_beyond_seq_len', '--sentences.query_length=32', '--seq_len=16'),
    ('others_beyond', 'train PAIRS --simcse.critic=cross --batch_size=8 '
     '--sentences.others=8', 'others_beyond_batch', '--sentences.others=8',
     '--batch_size=8', '7'),
    ('expand_of_cosine', 'train PAIRS --sentences.query_length=9 '
     '--sentences.expand', 'critic_without_setting', '--sentences.expand',
     '--simcse.critic=cosine'),
    ('words_of_late', 'train --objectives=ict --ict.critic=late '
     '--ict.words=9', 'setting_without_effect', '--ict.words',
     '--ict.critic=cosine'),
    ('cross_of_ict', 'train --objectives=ict --ict.critic=cross', 'bad_flag',
     'ict.critic', 'cosine', 'late', 'lexical'),
    ('two_critics', 'train --objectives=simcse:1,ict:1 --ict.critic=late',
     'critics_of_two_kinds', '--ict.critic=late', 'cosine'),
    ('two_widths', 'train --objectives=simcse:1,ict:1 --ict.critic=late '
     '--simcse.critic=late --simcse.token_width=9', 'critics_of_two_kinds',
     '--ict.critic=late'),
    ('queue_of_late', 'train PAIRS LATE --simcse.queue=9',
     'critic_without_setting', '--simcse.queue=9', '--simcse.critic=late'),
    ('momentum_alone', 'train --objectives=ict --ict.momentum=0.9',
     'momentum_without_queue', '--ict.momentum=0.9', '--ict.queue'),
    ('queue_of_no_keys', 'train --objectives=xlco ALIGNED --xlco.queue=9',
     'xlco_negatives_and_queue', '--xlco.queue=9'),
    ('words_of_rerankers', 'train --objectives=simcse:1,diffcse:1 '
     '--pairs=$a.csv --simcse.critic=cross', 'discriminator_without_vector',
     '--simcse.critic=cross'),
    ('no_negatives', 'train JUDGED --soft_margin.teacher=$run '
     '--pair_columns=anchor,positive', 'no_negatives_to_judge', 'tasks.mine'),
    ('no_reranker', 'train JUDGED', 'no_reranker', '--soft_margin.teacher'),
    ('teacher_alone', 'train --objectives=simcse:0,soft_margin:1 '
     '--soft_margin.teacher=nowhere', 'guide_without_pairs',
     '--soft_margin.teacher=nowhere', '--pairs'),
    ('guide_alone', 'train --objectives=simcse --simcse.guide=nowhere',
     'guide_without_pairs', '--simcse.guide=nowhere', '--pairs'),
    ('no_guide', 'train PAIRS --simcse.guide=nowhere', FileNotFoundError,
     'nowhere'),
    # Measures.
    ('best_and_measure', 'train --best=sts:a --measure=sts:b',
     'best_and_measure', '--best=sts:a', '--measure=sts:b'),
    *(
        (f'best_{number}', f'train --best={best}', 'unreadable_judgements',
         '--best=', *values)
        for number, (best, *values) in enumerate((
            ('sts', 'sts:FILE'),
            ('squad:x', '--best=squad:x', 'sts:FILE', 'retrieval:DIR',
             'tatoeba:DIR'),
            ('sts:$no.tsv', 'no.tsv'),
            ('sts:$beir', 'beir', 'STS.input.NAME.txt'),
            ('sts:$one.tsv', 'one.tsv', '1'),
            ('sts:$nan.tsv', 'line 3', "'nan"),
            ('sts:$columns.tsv', 'sentence2'),
            ('retrieval:$run', 'corpus.jsonl'),
            ('retrieval:$beir', 'qrels/test.tsv'),
            ('retrieval:$split/qrels/train.tsv', 'dev'),
        ))
    ),
    # Prepared text.
    ('output_missing', 'prepare --output=', 'missing_flag', '--output'),
    ('corpus_missing', 'prepare --corpus=', 'missing_flag', '--corpus'),
    ('no_store', 'prepare --output=$run', 'output_no_store', 'run'),
    ('remote_output', 'prepare --output=gs://bucket/store', 'remote_output',
     'gs://bucket/store'),
    ('prepared_already', 'prepare --corpus= --corpus=store:$store',
     'prepared_already', 'store'),
    ('several_texts', 'prepare --corpus=de=pydocs --corpus=en=pydocs',
     'several_texts', 'de=pydocs', 'en=pydocs'),
    ('beam_processes', 'prepare --beam_options=runner=x', 'processes_and_beam',
     '--processes=1', '--beam_options'),
    ('heldout_of_store', 'train --corpus= --corpus=store:$store',
     'store_with_heldout', 'store'),
    ('remote_store', 'languages --corpus=store:gs://bucket/store',
     'store_not_here', 'gs://bucket/store'),
    # Pictures.
    ('nothing_to_show', 'show', 'nothing_to_show', '--objectives'),
    ('no_words', 'show --objectives=mlm', 'too_few_words', '--objectives=mlm'),
    ('init_to_show', 'show --init=nowhere a b', FileNotFoundError, 'nowhere'),
    ('vocab_to_show', 'show --init=a --vocab=b --objectives=mlm a b',
     'init_and_vocab', '--init', '--vocab'),
    *((f'{row}_to_show', f'show --objectives={row} a b', 'labelled_views')
      for row in LABELLED),
    ('examples_to_show', 'show --objectives=gpt --gpt.reads=examples a b',
     'labelled_views'),
)  # fmt: skip


def setUpModule():
    """Writes text, pairs and measures, a workdir and a prepared store."""
    global FOLDER
    runs.set_up()
    FOLDER = places.make()
    languages.write(FOLDER)
    write_pairs(FOLDER / 'a.csv')
    write_pairs(FOLDER / 'b.csv', wrong=False)
    places.write(FOLDER, FILES)
    runs.run_here(FOLDER / 'run', '--steps=4')
    called('prepare', FOLDER)


def called(line, folder):
    """Calls a small command by its line; it writes nothing but in a folder."""
    for name, more in SHORT.items():
        line = line.replace(name, more)
    command, *typed = line.replace('$', f'{FOLDER}/').split()
    if command == 'train':
        quick.run(*runs.arguments(folder, *typed))
    elif command == 'languages':
        small = *runs.SMALL, '--vocab_size=300', '--tokenizer=sentencepiece'
        quick.run(*small, f'--workdir={folder}', *typed)
    elif command == 'prepare':
        flags = (f'--corpus=text:{FOLDER}/good.txt', '--vocab_size=60',
                 f'--output={folder}/store', '--processes=1')  # fmt: skip
        kind = prepare.PrepareChoices
        prepare.run(**commands.parse(kind, [*flags, *typed]))
    else:
        texts = ' '.join(x for x in typed if not x.startswith('--'))
        flags = [x for x in typed if x.startswith('--')]
        flags.append(f'--output={folder}/x.png')
        show.run([texts], **commands.parse(show.ShowChoices, flags))


class BadInputTest(places.Folder, parameterized.TestCase):
    @parameterized.named_parameters(*LINES)
    def test_refused(self, line, id, *values):
        kinds = errors.UsageError, ValueError, OSError
        with (
            contextlib.redirect_stdout(io.StringIO()),
            self.assertRaises(kinds) as raised,
        ):
            called(line, self.folder)
        error = raised.exception
        self.assertIn(id, (getattr(error, 'id', ''), type(error)))
        for value in values:
            self.assertIn(value, str(error))
        self.assertLen(str(error).splitlines(), 1)

    @parameterized.parameters(
        'expand_of_cosine', 'queue_of_late', 'no_reranker', 'no_negatives',
        'queue_of_no_keys', 'words_of_rerankers', 'momentum_alone',
        'two_critics', 'two_widths', 'words_of_late',
    )  # fmt: skip
    def test_settings_are_refused_before_text_is_read(self, name):
        (line,) = (line for other, line, *_ in LINES if other == name)
        with (
            mock.patch('infoword_tf.training.run.run') as reading,
            self.assertRaises((errors.UsageError, errors.InputError)),
        ):
            called(line, self.folder)
        reading.assert_not_called()

    def stderr_of(self, status, function, argv=('train',), **more):
        """Returns the standard error of a command that ends with a status."""
        with (
            contextlib.redirect_stderr(io.StringIO()) as shown,
            self.assertRaises(SystemExit) as raised,
        ):
            commands.guard(function, [*argv], **more)
        self.assertEqual(raised.exception.code, status)
        return shown.getvalue()

    def test_a_missing_package_names_its_extra(self):
        with (
            mock.patch.dict(sys.modules, {'bm25s': None}),
            refused('missing_package', 'BM25', 'bm25s', 'infoword_tf[tasks]'),
        ):
            bm25.library.__wrapped__()

    def test_the_command_says_it_and_fails(self):
        """In a process of its own: nothing but a sentence is seen."""
        status, output = run(
            self.folder, '--strategy=mirrored', '--logical_cpus=3'
        )
        self.assertEqual(status, 1)
        self.assertRegex(output, r'\Aerror: .*--batch_size=8 .* 3 .*\n\Z')

    @parameterized.parameters(
        MemoryError(), tf.errors.ResourceExhaustedError(None, None, 'OOM')
    )
    def test_too_little_memory(self, error):
        self.assertRegex(
            self.stderr_of(1, mock.Mock(side_effect=error)),
            r'\Aerror: [^\n]*lower --batch_size[^\n]*\n\Z',
        )

    def test_other_errors_are_seen_whole(self):
        broken = mock.Mock(side_effect=KeyError('a fault of ours'))
        with self.assertRaises(KeyError):
            commands.guard(broken, ['train'])

    def test_of_tensorflow_all_is_said_but_how_often_it_traces(self):
        logger = tf.get_logger()
        commands.hush_tensorflow()
        self.addCleanup(logger.removeFilter, commands._concerns_users)
        for message, is_shown in (
            ('5 out of 5 calls to f triggered tf.function retracing.', False),
            ('the disk is full', True),
        ):
            record = logging.makeLogRecord({'msg': message})
            self.assertEqual(bool(logger.filter(record)), is_shown, message)

    @parameterized.parameters(
        (KeyboardInterrupt(), 130, '\nstopped; it goes on\n'),
        (errors.Preempted('by SIGTERM: from step 3'), 42,
         'stopped by SIGTERM: from step 3\n'),
    )  # fmt: skip
    def test_who_stops_it(self, error, status, expected):
        stopped = mock.Mock(side_effect=error)
        printed = self.stderr_of(status, stopped, stopped='it goes on')
        self.assertEqual(printed, expected)
