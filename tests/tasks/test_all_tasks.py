"""All commands in a folder of small files: what they refuse, what they leave.

A line is (flags, id, *values): the id of the error, None where another room
raises it, and what the complaint names. All run in a folder of small files.
What EARLY holds is said before TensorFlow is imported.
"""

import contextlib
import importlib
import json
import shutil
import subprocess
import sys

from absl.testing import absltest

from infoword_tf.config import TaskConfig
from tests import places
from tests.export import workdirs
from tests.runs import ROOT
from tests.tasks import command, finetuning, squad_files
from tests.tasks.test_typed import answer

LABELS = ('class', 'loop', 'text')
ENTAILED = 'entailment', 'not_entailment'
FINE = ' '.join(finetuning.SMALL) + ' --init={init}'
TABLES = ' --train=train.tsv --dev=dev.tsv'
TAUGHT = ' '.join(finetuning.SMALL) + ' --teacher={teacher} --steps=1'
# By name a command and its flags; those of a line come later, and win.
COMMANDS = {
    'classify': FINE + TABLES,
    'glue': FINE + ' --task=rte --data_dir=glue',
    'squad': FINE + ' --train=squad.json --dev=squad.json --seq_len=40',
    'tag': FINE + ' --train=words.conll --dev=words.conll',
    'distill': TAUGHT + ' --layers=2' + TABLES,
    'distill embed': '--task=embed --teacher={embedder} --steps=1 '
                     '--corpus=lines:text.txt --heldout=heldout.txt',
    'distill parallel': '--task=embed --teacher={embedder} --steps=1 '
                        '--parallel=deu-eng.tsv --vocab_size=120 '
                        '--heldout_parallel=deu-eng-held.tsv '
                        '--tokenizer=sentencepiece',
    'flow': '--init={shared} --corpus=text:text.txt --heldout=heldout.txt '
            '--pooling=first_last',
    'lm': '--init={gpt} --corpus=lines:text.txt --heldout=heldout.txt',
    'mine': '--init={shared} --pairs=pairs.csv',
    'probe': '--init={shared} --train=topics.csv --text=body --label=topic',
    'retrieval': '',
    'sts': '--init={shared} --data=sts.tsv',
    'tatoeba': '--init={shared} --data_dir=pairs',
    'whiten': '--init={shared} --corpus=text:text.txt',
    'words': '--vectors=vectors.txt --data_dir=words',
    'infoword_tf.training.begin': '--workdir=w', 'infoword_tf.convert': '',
    'export.savedmodel': '--output=w', 'export.litert': '--output=w',
    'export.verify': '--init={init}', 'export.compat': '', 'export.search': '',
    'tasks.lm': '--sample',
}  # fmt: skip
NEEDED = {
    'classify': 'init train dev workdir', 'glue': 'data_dir init workdir',
    'squad': 'train dev workdir', 'tag': 'train dev init workdir',
    'distill': 'teacher dev workdir',
    'distill embed': 'corpus', 'lm': 'init corpus workdir',
    'words': 'workdir', 'flow': 'init', 'whiten': 'init', 'tatoeba': 'data_dir',
    'mine': 'init', 'probe': 'train',
    'infoword_tf.training.begin': 'workdir', 'export.savedmodel': 'init',
    'export.verify': 'model', 'export.search': 'model',
}  # fmt: skip
GLUE = 'index\tsentence1\tsentence2\tlabel\n'
FILES = {
    'a.csv': 'text,label\nx,1\ny,0\n',
    'new.tsv': 'text\tlabel\na\tclass\nb\tnew\n',
    'texts.csv': 'id,text\n\n0,"a text"\n',
    'headless.tsv': 'a text of some words\tloop\nanother\tclass\n',
    'xnli.tsv': finetuning.XNLI,
    'sets.jsonl': '{"text": "a", "of": ["class", "loop"]}\n'
                  '{"text": "b", "of": ["text"]}\n' * 8,
    'other.jsonl': '{"text": "a", "of": ["class"]}\n'
                   '{"text": "b", "of": ["odd"]}\n',
    'plain.jsonl': '{"text": "a", "of": "class"}\n',
    'choices.tsv': 'body\tclass\tloop\ttext\tlabel\n' + ''.join(
        f'a\tb\tc\td\t{LABELS[i % 3]}\n' for i in range(9)),
    'glue/RTE/train.tsv': GLUE + '0\ta\tb\tentailment\n' * 8,
    'glue/RTE/dev.tsv': GLUE + '0\ta\tb\tentailment\n' * 8,
    'glue/STS-B/train.tsv': GLUE.replace('label', 'score') + '0\ta\tb\t1\n' * 9,
    'glue/STS-B/dev.tsv': GLUE.replace('label', 'score') + '0\ta\tb\t1\n' * 9,
    'few/CoLA/train.tsv': 'x\t0\t\ta\n' * 8,
    'few/CoLA/dev.tsv': 'x\t0\t\ta\nx\t1\t\tb\n' * 4,
    'text.txt': 'Names refer to objects. More text here.\n\n' * 9,
    'heldout.txt': 'Lists can be changed. Loops end.\n',
    'same.txt': 'Names refer to objects.\n',
    'single.txt': 'One sentence.\n',
    'blank.txt': '\n\n',
    'one.txt': 'One document alone, no other.\n' * 9,
    'deu-eng.tsv': 'the dog sleeps\tder Hund schläft\n'
                   'the cat eats\tdie Katze isst\n' * 8,
    'deu-eng-held.tsv': 'the man sings\tder Mann singt\n',
    'words.conll': 'Ada B-PER\nran O\n\n' * 9,
    'parts.conll': 'Ada NN\nran VB\n\n' * 9,
    'same.conll': 'a O\nb O\n',
    'pairs.csv': 'a,b\nx,y\n',
    'topics.csv': 'body,topic\n' + 'a,x\nb,y\n' * 5,
    'few.csv': 'body,topic\n' + 'a,x\nb,y\n' * 4 + 'a,x\n',
    'topic_z.csv': 'body,topic\na,x\nb,z\n',
    'empty/x': '', 'trec/train_5500.label': 'DESC:def What ?\n',
    'trec/TREC_10.label': 'DESC:def What ?\n',
    'beir/corpus.jsonl': '{"_id": "a", "text": "x"}\n'
                         '{"_id": "b", "text": "y"}\n',
    'beir/queries.jsonl': '{"_id": "q1", "text": "x"}\n'
                          '{"_id": "q2", "text": "y"}\n',
    'beir/qrels/test.tsv': 'q1\ta\t2\nq2\tb\t1\n',
    'queries.jsonl': '{"_id": "q1", "text": "x"}\n',
    'no.trec': '', 'q4.trec': 'q4 Q0 a 1 1 t\n',
    'model/config.json': '{}',
    'sts.tsv': ''.join(f'm\tx\t2012\t{i}\t{i}\ta {i}\tb {i}\n'
                       for i in range(5)),
    'sets/STS/STSBenchmark/sts-test.csv': 'x', 'sets/sts-test.csv': 'x',
    'pairs/tatoeba.deu-eng.deu': 'Ja\nNein\n',
    'pairs/tatoeba.deu-eng.eng': 'Yes\nNo\n',
    'pairs/tatoeba.fra-eng.fra': 'Oui\nNon\n',
    'pairs/tatoeba.fra-eng.eng': 'Yes\nNo\n',
    'vectors.txt': '2 2\nup 0 1\nright 1 0\n',
    'words/pairs.txt': 'up\tright\t1\n',
    'twice/pairs.txt': '', 'twice/pairs.tsv': '',
    'unknown/pairs.txt': 'left\tdown\t1\n',
}  # fmt: skip
for number, line in enumerate((
    'q1 Q0 a 1 1', 'q1 Q0 a b 1 1 t', 'q1 Q0 a 1 high t', 'q1 Q0 a 1 nan t',
    'q1 Q0 a 1 1e39 t', 'q1 Q0 b 2 0 t',
)):  # fmt: skip
    FILES[f'{number}.trec'] = f'q1 Q0 b 1 1 t\n{line}\n'

NAMED = ('--batch_size=2 --text=sentence1 --pair=sentence2 '
         '--label=gold_label --train=xnli.tsv --dev=xnli.tsv ')  # fmt: skip
SETS = '--label=of --train={} --dev={} '
BOTH = SETS.format('sets.jsonl', 'sets.jsonl')
SAME = '--train={0} --dev={0} '
RUN = '--data_dir=beir --run='
NO_RUN = 'nowhere has no config.json: it is not the workdir'
NO_VERSION = 'empty is no version of an export'
BY_DIFFCSE = '--objectives=simcse:1,diffcse:1 --diffcse.generator='

EARLY = {
    'classify': [
        ('--init=nowhere', None, NO_RUN),
        ('--freeze --init=', None, '--init is missing'),
        ('--objectives=mlm', 'sum_without_task', '=mlm', 'classify', 'label:1'),
        ('--objectives=label:0,mlm:1', 'sum_without_task', 'label:1'),
        ('--metric=f1', 'unknown_metric', '=f1', 'accuracy, matthews'),
        ('--label.texts=both_ways', 'table_without_pair', 'train.tsv'),
        ('--label.texts=choices', 'table_without_choices', 'train.tsv'),
        ('--choices=text', 'single_choice', '=text'),
        ('--choices=text,label --pair=text', 'choices_with_pair', '--regress'),
        ('--text=body', 'no_single_column', 'train.tsv', "'body'", 'text, la'),
        ('--pair=other', None, "'other'"),
        ('--score.pooler=tanh', None, '--score.pooler'),
        ('--test=none.tsv', None, 'none.tsv', 'no such file'),
        ('--predict=none.tsv', None, 'none.tsv', 'no such file'),
        ('--dev=new.tsv', None, 'new.tsv, line 3', "'new'", 'class, loop'),
        ('--dev=headless.tsv', 'first_line_is_row', 'headless.tsv', "'text'",
         'a text of some words, loop', '--columns=NAME,NAME'),
        # Further tables, before anything is trained.
        ('--test=new.tsv', None, 'new.tsv, line 3', "'new'", 'class'),
        ('--test=texts.csv', None, 'texts.csv', "'label'", 'id, text'),
        ('--pair=label --predict=texts.csv', None, 'texts.csv', "'label'"),
        # Groups of them.
        (NAMED + '--test=xnli.tsv --test_by=language --test_only=de,sw',
         'unknown_test_group', "'sw'", 'xnli.tsv', 'fr, de'),
        (NAMED + '--test=test-*.tsv --test_by=language', 'test_two_stars',
         'leave out --test_by'),
        (NAMED + '--test=*-*.tsv', 'test_two_stars', 'other wildcards'),
        (NAMED + '--test=xnli.tsv --test_only=de', 'test_only_one_group',
         '--test_only=de'),
        (NAMED + '--test_by=language', 'flag_without_test', '--test_by'),
        # Several labels.
        (SETS.format('sets.jsonl', 'other.jsonl'), None, 'other.jsonl, line 2',
         "'odd'"),
        (BOTH + '--label_columns=text,loop,class --regress',
         'label_columns_with_choices', '--choices'),
        (BOTH + '--label_columns=text,loop,class --separator=;',
         'separator_with_choices', '=;', '--label_columns'),
        (BOTH + '--label_columns=a,b,a', 'label_column_twice', 'a,b,a'),
        (BOTH + '--metric=accuracy', 'unknown_metric', 'f1_micro'),
        (BOTH + '--examples=1', 'class_without_example', '1 examples'),
        (SETS.format('sets.jsonl', 'plain.jsonl'), 'labels_and_sets',
         'plain.jsonl', 'one label'),
    ],
    'glue': [
        ('--task=cola', None, 'CoLA/train.tsv', '--data_dir'),
        ('--task=sts-b --objectives=label', 'sum_without_task', 'sts-b',
         'score:1'),
        ('--task=sts-b --label.pooler=tanh', None, '--label.pooler'),
        ('--task=cola --data_dir=few', 'class_without_example',
         "CoLA/train.tsv: none of the 8 examples is 'acceptable'"),
        ('--init=nowhere', None, NO_RUN),
    ],
    'squad': [('--dev=nowhere.json', None, 'nowhere.json', 'no such file')],
    'tag': [
        ('--init=nowhere', None, NO_RUN),
        ('--dev=nowhere.conll', None, 'nowhere.conll', 'no such file'),
        ('--column=5', 'tag_column_missing', 'words.conll, line 1', '--column'),
        ('--dev=parts.conll', 'tags_of_two_kinds', 'words.conll has',
         '(B-, I-)', 'parts.conll has'),
        ('--train=parts.conll', 'tags_of_two_kinds', 'words.conll has',
         '(B-, I-)', 'parts.conll has'),
        ('--train=same.conll --dev=same.conll', 'single_tag', "'O'"),
        ('--test=parts.conll --column=3', 'tag_column_missing', '3'),
        ('--predict=empty/x', 'no_tagged_text', 'empty/x'),
    ],
    'distill': [
        ('--task=squad --extra=no.tsv', None, '--extra is for labels of'),
        ('--column=1', None, '--column', '--task=tag'),
        ('--teacher=nowhere', None, NO_RUN),
        ('--train=', 'no_examples_named', '--task'),
        ('--task=rte', 'no_examples_named', '--train'),
        ('--beta=nan', None, '--beta=nan'),
        ('--adapter=lora', 'adapter_of_student', '--adapter=lora', '--init'),
        ('--objectives=label', None, '--objectives', '--alpha'),
        ('--train= --dev= --task=sts-b --temperature=2',
         'temperature_of_numbers', '--task=sts-b'),
        ('--regress --label=text', None, 'score'),
        ('--regress --temperature=2', 'temperature_of_numbers', '--regress'),
    ],
    'distill embed': [
        ('--teacher=nowhere', None, NO_RUN),
        ('--teacher=empty', None, 'has no config.json'),
        ('--width=16', None, '--student=layers has no --width'),
        ('--student=lookup --layers=2', None, '=lookup has no --layers'),
        ('--student=lookup --init={embedder}', 'lookup_with_init', '--teacher'),
        ('--alpha=0.5', None, '--alpha', '--task=embed'),
        ('--sweep=pkd', None, '--sweep'),
        ('--objectives=mlm', 'row_reads_no_teacher', 'mlm', 'embed'),
        ('--heldout=text.txt', None, 'match both'),
        ('--task=rte --student=lookup', None, '--student', '--task=embed'),
        ('--heldout=', None, '--heldout=GLOB'),
        ('--corpus=text:one.txt --heldout=', 'split_without_sentence',
         'text:one.txt', 'train'),
        ('--teacher_language=en', None, '--teacher_language', '--parallel'),
        ('--drop_equal', None, '--drop_equal', '--parallel'),
    ],
    'distill parallel': [
        ('--teacher_language=fr', 'unknown_teacher_language', '=fr', 'de-en'),
        ('--heldout=x', 'heldout_without_corpus', '--heldout_parallel'),
        ('--task=rte', None, '--parallel', '--task=embed'),
        ('--vocab=x.model', None, '--vocab_size=120'),
    ],
    'flow': [
        ('--init=nowhere', None, NO_RUN),
        ('--workdir=model', 'workdir_holds_files', '--workdir=model'),
    ],
    'lm': [
        ('--workdir=model', None, 'holds a model'),
        ('--init=nowhere --corpus=text:one.txt --heldout=one.txt', None,
         'one.txt'),
    ],
    'mine': [
        ('--init=nowhere', None, NO_RUN),
        ('--rescore={gpt}', 'rescore_cannot_judge', 'its rows: gpt'),
        ('--data_dir=beir', 'pairs_or_folder', '--pairs', '--data_dir'),
        ('--positives=3', 'refused_flag', '--positives'),
    ],
    'probe': [
        ('--init=', 'init_or_model'),
        ('--init= --model=m --pooling=cls', 'flag_of_init', '--pooling'),
        ('--train=MR', None, '--train=MR', 'no such file or folder'),
        ('--train=trec --dev=a.csv', 'dev_with_folder', '--train=trec'),
        ('--label=kind', None, "'kind'"),
        ('--dev=topic_z.csv', None, 'topic_z.csv, line 3', "'z'", 'x, y'),
        ('--train=few.csv --dev=topics.csv', 'fewer_than_folds',
         'few.csv: 4 of 9', "'y'", '5-fold'),
        ('', 'fewer_than_folds', 'topics.csv: 5 of 10', "'x'", '10-fold'),
    ],
    'retrieval': [
        ('--corpus=pydocs --workdir= --init=a', None, '--workdir is missing'),
        ('--corpus=pydocs', 'no_model_named', '--init', '--model', '--run'),
        ('--init=b', 'corpus_or_folder', '--corpus', '--data_dir'),
        ('--init=b --corpus=c --data_dir=d', 'corpus_or_folder', '--corpus'),
        ('--init=b --data_dir=d --heldout=c', None, '--heldout', '--corpus'),
        ('--init=b --corpus=c --split=d', None, '--split', '--data_dir'),
        ('--init=b --corpus=c --queries=d', None, '--queries', '--data_dir'),
        ('--init=b --corpus=c --first=d', 'stage_of_no_model', '--first=d'),
        ('--init=b --corpus=c --rerank=d', 'stage_of_no_model', '--rerank=d'),
        ('--init=b --corpus=c --rerank=bm25', 'stage_of_no_model',
         '--rerank=bm25'),
        ('--init=b --corpus=c --rerank_top=9', 'rerank_top_without_stage',
         '--rerank', '--first'),
        ('--model=b --corpus=c --seed=1', None, '--seed', '--init'),
        ('--run=b --init=c --corpus=d', None, 'leave out --init'),
        ('--run=b --model=c --corpus=d', None, 'leave out --model'),
        ('--run=b --batch_size=2 --corpus=d', None, 'nothing is search'),
        ('--run=b --seed=2 --corpus=d', None, '--seed', '--init'),
        ('--run=b --vectors=y --corpus=d', None, 'leave out --vectors'),
        ('--run=b --tune=y --corpus=d', None, 'leave out --tune'),
        ('--init=a --corpus=c --tune=dev', 'tune_without_split', '--tune=dev'),
        ('--init=a --data_dir=beir --tune=test', 'tune_on_measured', '=test'),
        ('--init=a --data_dir=beir --tune=no', None, 'no qrels/no.tsv'),
        ('--init=a --data_dir=beir --tune=0', 'tune_number', '=0', 'beir (te'),
        ('--init=a --data_dir=beir --tune=3', 'tune_number', '=3', 'beir (te'),
        ('--init=a --corpus=pydocs --workdir=model', None, 'name another'),
        ('--run=none.trec --corpus=text:one.txt --heldout=heldout.txt', None,
         '--run=none.trec', 'no such file'),
        (RUN + '0.trec', 'trec_bad_line', '0.trec, line 2', 'q1 Q0 a 1 1'),
        (RUN + '1.trec', 'trec_bad_line', 'line 2', 'q1 Q0 a b 1 1 t'),
        (RUN + '2.trec', 'trec_bad_line', 'line 2', 'q1 Q0 a 1 high t'),
        (RUN + '3.trec', 'trec_bad_score', 'line 2', 'nan'),
        (RUN + '4.trec', 'trec_bad_score', 'line 2', '1e39'),
        (RUN + '5.trec', 'trec_document_twice', 'line 2', "'b'", "'q1'"),
        (RUN + 'no.trec', 'trec_other_queries', 'beir (test)'),
        (RUN + 'q4.trec', 'trec_other_queries', 'beir (test)'),
        ('--init=a --data_dir=beir --queries=queries.jsonl',
         'beir_unknown_query', 'test.tsv, line 2', "'q2'", 'queries.jsonl'),
        ('--init=a --data_dir=beir --queries=none.jsonl', None,
         '--queries=none.jsonl', 'no such file'),
    ],
    'sts': [
        ('--init=', 'init_or_model'),
        ('--data=no.json', None, 'no.json', 'no such file'),
        ('--data=sets', 'sts_set_twice', 'STS-B', 'sts-test.csv'),
    ],
    'tatoeba': [
        ('--init=', 'init_or_model'),
        ('--init= --model=m --layer=0', 'flag_of_init', '--layer'),
        ('--init= --model=m --pooling=cls', 'flag_of_init', '--pooling'),
        ('--neighbours=3', 'neighbours_of_cosine', '=3', '--score=margin'),
        ('--languages=deu,tur', 'bitext_lacks_language', 'tur', 'deu, fra'),
        ('--workdir={shared}', None, 'holds a model'),
        ('--init=nowhere', None, NO_RUN),
    ],
    'whiten': [
        ('--init=nowhere', None, NO_RUN),
        ('--workdir=model', 'workdir_holds_files', '--workdir=model'),
    ],
    'words': [
        ('--vectors=', 'init_or_vectors'),
        ('--data_dir=empty', 'words_no_files', '--data_dir=empty', '*.txt'),
        ('--data_dir=twice', 'words_test_twice', "'pairs'"),
        ('--data_dir=unknown', 'words_all_unknown', 'pairs', 'the 2'),
    ],
    'infoword_tf.training.begin': [
        ('tiny', None, "'tiny' is no flag"),
        ('--corpus=text:*.txt --best=no.tsv', 'unreadable_judgements',
         '--best=no.tsv', 'sts:FILE'),
        ('--corpus=text:none*', 'no_file_matches', 'none*'),
        ('--init=nowhere', None, NO_RUN),
        (BY_DIFFCSE + 'nowhere', None, NO_RUN),
        (BY_DIFFCSE + '{cut}', None, 'whose rows (ict) fill no blanks',
         'mlm or mmlm or tlm or bert_nce or overlap'),
        ('--objectives=label --init={init}', 'labelled_objectives',
         'tasks.class'),
    ],
    'infoword_tf.convert': [
        ('--source=empty --workdir=w', None, 'has no config.json'),
        ('--init=nowhere --output=w', None, NO_RUN),
    ],
    'tasks.lm': [('--init=nowhere', None, NO_RUN)],
    'export.savedmodel': [
        ('--init=nowhere', None, NO_RUN),
        ('--init={init} --sts=no.tsv', None, 'no.tsv'),
    ],
    'export.litert': [('--init=nowhere', None, NO_RUN)],
    'export.verify': [('--model=empty', None, NO_VERSION)],
    'export.compat': [('--python=/none', None, '--python=/none')],
    'export.search': [
        ('--model=empty --corpus=text:one.txt', None, NO_VERSION),
    ],
}  # fmt: skip
LATE = {
    'classify': [
        ('--text=body', 'no_single_column', 'train.tsv', "'body'"),
        ('--objectives=label:1,score:1', None, 'score', 'labelled for label'),
        ('--learning_rate=nan', None, '--learning_rate=nan'),
        ('--batch_size=27', None, '26 examples', 'takes 27', '--batch_size'),
    ],
    'squad': [
        ('--init=', None, '--init is missing'),
        ('--objectives=mlm', 'sum_without_task', 'squad', 'span'),
    ],
    'tag': [('--objectives=mlm', 'sum_without_task', 'tag:1')],
    'distill': [
        ('--extra=no.tsv', None, 'no.tsv', 'no such file'),
        ('--layers=5', 'student_too_deep', '--layers=5', '--init=', 'has 4'),
        ('--layers=1', 'patience_of_layers', '--patience=last', '1 layers'),
        ('--teacher={init}', 'teacher_without_labels', '--teacher='),
        ('--teacher={turned}', 'teacher_of_other_labels', 'text, loop, class',
         'class, loop, text'),
        ('--teacher={numbers}', 'teacher_of_other_row', 'for score',
         'of label'),
        ('--teacher={sets}', 'teacher_of_label_sets', 'the data has one'),
        ('--train= --dev= --task=rte --data_dir=glue --teacher={qnli}',
         'teacher_of_other_task', 'on qnli', 'is rte'),
        ('--label.texts=choices', 'teacher_other_setting',
         '--label.texts=joined', 'choices'),
        ('--text=body --choices=class,loop,text '
         + SAME.format('choices.tsv'), 'teacher_other_setting',
         '--label.texts=joined', 'choices'),
        ('--seq_len=65', 'seq_len_over_teacher', '64 positions'),
        ('--init={words}', 'teacher_other_vocabulary', '--teacher='),
    ],
    'distill embed': [
        ('--teacher={cut}', 'teacher_without_vectors', 'pooling weig'),
        ('--student=lookup --width=65', 'student_too_wide', '--width=65'),
        ('--layers=5', 'student_too_deep', '--layers=5', '--init='),
    ],
    'flow': [('--levels=9', None, '9 levels', '64 numbers')],
    'lm': [
        ('--heldout=blank.txt', None, '1 file'),
        ('--seq_len=65', 'lm_seq_len_over_positions', '--seq_len=65', '64'),
        ('--init={init}', 'scores_no_token', 'mlm'),
        ('--memory_length=8', 'lm_encoder_without_memory', '=8', 'transformer'),
    ],
    'sts': [('--dims=99', 'dims_over_width', '--dims=99', '64')],
    'probe': [('--dims=99 --dev=topics.csv', 'dims_over_width', '64')],
    'retrieval': [
        ('--init={shared} --data_dir=beir --dims=99', 'dims_over_width', '64'),
        ('--init={shared} --corpus=text:one.txt --heldout=same.txt',
         'corpus_without_queries', '--corpus=text:one.txt', '--heldout'),
    ],
    'tatoeba': [
        ('--layer=2', 'no_such_layer', '--layer=2', 'embeddings) to 1'),
        ('--pooling=median', None, "'median'", 'cls'),
        ('--dims=99', 'dims_over_width', '--dims=99', '64'),
    ],
    'whiten': [
        ('--dims=9999', 'dims_over_init', '--dims=9999', '64'),
        ('--corpus=text:single.txt --heldout=heldout.txt', 'corpus_too_short',
         'single.txt'),
        ('--init={counted}', 'pooling_adds_numbers', 'words'),
    ],
}  # fmt: skip


def setUpModule():
    global FOLDER, WORKDIRS
    FOLDER = places.make()
    places.write(FOLDER, FILES)
    rows = finetuning.sentences()
    finetuning.write(FOLDER / 'train.tsv', ('text', 'label'), rows[:26])
    finetuning.write(FOLDER / 'dev.tsv', ('text', 'label'), rows[50:75])
    question = squad_files.asked('the cat saw', 'cat')
    squad_files.write(FOLDER / 'squad.json', ('the cat saw the dog', question))

    def make(name, rows=('mlm',), **more):
        return workdirs.write(FOLDER / 'runs' / name, rows, **more)

    def tuned(name, labels=LABELS, **more):
        return finetuning.tuned(FOLDER / 'runs' / name, labels, **more)

    WORKDIRS = {
        'init': finetuning.init(),
        'shared': workdirs.shared(),
        'gpt': make('gpt', ('gpt',)),
        'teacher': tuned('teacher'),
        'turned': tuned('turned', LABELS[::-1]),
        'numbers': tuned('numbers', (), rows=('score',)),
        'sets': tuned('sets', settings={'label.multilabel': True}),
        'qnli': tuned('qnli', ENTAILED, fields={
            'task': TaskConfig('qnli', 'label', True, ('accuracy',), {}, {})}),
        'words': make('words', kind='words', pooling='cls', layers=2),
        'embedder': make('embedder'),
        'counted': make('counted', ('ict',), pooling='words',
                        settings={'ict.words': 8}),
        'cut': make('cut', ('ict',), pooling='weighted', without='objectives/'),
    }


def typed(name, more):
    module, words = name.partition(' ')[0], f'{COMMANDS[name]} {more}'
    if '.' not in module:
        module, words = f'tasks.{module}', f'--workdir=w {words}'
    return module, *words.format(**WORKDIRS).split()


class LeavesTest(absltest.TestCase):
    def test_results(self):
        """Equal as last line, in metrics.json, and as what is returned."""
        with contextlib.chdir(FOLDER):
            for name, more in (
                ('lm', ''), ('words', ''), ('sts', ''),
                ('probe', '--dev=topics.csv'),
                ('retrieval', '--data_dir=beir --init={shared}'),
                ('tatoeba', '--score=margin --dims=40'),
            ):  # fmt: skip
                with self.subTest(name):
                    workdir = f'left-{name}'
                    module, *words = typed(name, f'{more} --workdir={workdir}')
                    module = importlib.import_module(module)
                    command.left(command.run(module, *words), workdir)


class RefusedTest(command.Checks, absltest.TestCase):
    def check(self, name, line, status, id, err):
        more, expected, *values = line
        done = command.CommandDone(status, None, '', err, id)
        with self.subTest(f'{name} {more}'):
            self.assert_refused(done, expected, *values)

    def test_before_tensorflow(self):
        lines = [(name, line) for name in EARLY for line in EARLY[name]]
        lines += [
            (name, (f'--{flag}=', None, f'--{flag} is missing'))
            for name, needed in NEEDED.items() for flag in needed.split()
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, '-c',
             'from tests.tasks import test_typed; test_typed.answer_all()'],
            cwd=FOLDER, env={'PYTHONPATH': str(ROOT)}, text=True, check=False,
            input=json.dumps([typed(name, more) for name, (more, *_) in lines]),
            capture_output=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        for line, actual in zip(lines, json.loads(done.stdout), strict=True):
            self.check(*line, *actual)
        self.assertFalse((FOLDER / 'w').exists())

    def test_what_is_said(self):
        with contextlib.chdir(FOLDER):
            for name, lines in (*EARLY.items(), *LATE.items()):
                for line in lines:
                    self.check(name, line, *answer(*typed(name, line[0])))
                    if name == 'classify':  # a run that has begun
                        shutil.rmtree('w', ignore_errors=True)
                    self.assertFalse((FOLDER / 'w').exists(), line)
