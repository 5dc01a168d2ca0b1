"""Differences between publications and the sums that have their names.

A pair is (as published, here). A source in brackets is a file or function of
the published code, a section of the paper, or its README.
"""

Difference = tuple[str, str]

PAIRS: tuple[Difference, ...] = (
    (
        'rates of 3e-6 to 2e-5, hundreds of thousands of queries',
        '1e-4 and two epochs from `--init`, 60 updates at least; as the flags '
        'say',
    ),
)
COLBERT: tuple[Difference, ...] = (
    (
        'b and one negative (ColBERT), or KL to a reranker over 64 '
        'passages (ColBERTv2)',
        'all b of the batch and the negatives of the file; KL is '
        '`--objectives=simcse:0,soft_order:1`',
    ),
)
SPLADE: tuple[Difference, ...] = (
    (
        'FLOPS of 3e-4 for queries and 1e-4 for passages, rising over 50,000 '
        'of 150,000 updates',
        'weights for runs of hundreds of updates, rising over a third of '
        'them; `--simcse.query_flops=3e-4 --simcse.passage_flops=1e-4`',
    ),
    (
        'FLOPS of b and of negatives apart, then their mean',
        'of all passages together',
    ),
)
MONOBERT: tuple[Difference, ...] = (
    (
        'a class of two for each pair (Nogueira & Cho 2019)',
        'InfoNCE over b, other b and negatives; two classes are '
        '`tasks.classify --text=a --pair=b --label=relevant`',
    ),
)
MARGIN_MSE: tuple[Difference, ...] = (
    (
        'one negative a query, the mean score of three rerankers',
        'all negatives of an example, one reranker',
    ),
)
BERT: tuple[Difference, ...] = (
    (
        'ten copies of the text, each masked once '
        '(`create_pretraining_data.py`)',
        'anew in each epoch',
    ),
    (
        'half of the pairs have another B, more where a text is one sentence; '
        'it may be of the same document',
        'half, always of another document, of B as long as the true one',
    ),
    (
        'nine tenths of the updates of 128 tokens, then 512 (§A.2)',
        '`--seq_len`; a second run with `--init` and `--seq_len=512`',
    ),
    (
        'Adam without bias correction, 1e-4, 10,000 updates of warm-up',
        'as the flags say; theirs is `--optimizer=bert`',
    ),
)
INFOWORD: tuple[Difference, ...] = (
    (
        'batches of 1,024 x 512 tokens: about 70,000 words and 10,000 n-grams '
        'are candidates (§5.2)',
        'those of `--batch_size` and `--seq_len`',
    ),
    (
        'lambda of .4, .6, .8 or 1, chosen by dev scores (Figure 1)',
        '.8; `--objectives=bert_nce:1,dim:0.4`',
    ),
    (
        'whether equal n-grams of other texts are candidates is not said',
        'they are not: S~ is a set',
    ),
)
XLNET: tuple[Difference, ...] = (
    (
        'a span is as many tokens as were drawn words (`data_utils.py`, '
        '`_sample_mask`)',
        'whole words',
    ),
    (
        'batches of 2,048 x 512 tokens, a memory of 384 (README)',
        'those of `--batch_size`, `--seq_len` and `--memory_length`',
    ),
)
SENTENCES: tuple[Difference, ...] = (
    (
        'copies of b are negatives (SimCSE, `simcse/models.py`)',
        'none',
    ),
    (
        'of n processes the gradient is 1/n of that of one '
        '(`simcse/models.py`, `all_gather`)',
        'that of one',
    ),
    (
        'AdamW without weight decay and warm-up (`trainers.py`)',
        'as the flags say, by default `--optimizer=infoword`; theirs is '
        '`--optimizer=adamw --weight_decay=0 --warmup_steps=0`',
    ),
    (
        'weights with the best STS-B dev score, measured every 125 updates',
        'the last weights; `--best=sts:FILE` keeps the best',
    ),
)
ESIMCSE: tuple[Difference, ...] = (
    *SENTENCES,
    (
        'a token is doubled once, before training; up to min(10, int(.32 N)) '
        '- 1 of them (`train.py`)',
        'anew in each epoch; up to max(2, int(.32 N)), as the paper says '
        '(§3.1)',
    ),
    (
        'the momentum encoder begins with random weights (`esimcse/models.py`, '
        '`init_weights`)',
        'as a copy of the encoder',
    ),
)
CONSERT: tuple[Difference, ...] = (
    (
        'the sum of both directions, times .15 (`AdvCLSoftmaxLoss.py`)',
        'their mean, which is the same to Adam unless the gradient is clipped',
    ),
    (
        'AdamW without bias correction, a tenth of warm-up, 5e-7 (`scripts/`)',
        'as the flags say',
    ),
    (
        'trained without dropout, compared by the mean of the last two layers',
        '`--dropout=0`, `encode(layers=(-2, -1))`',
    ),
)
CONDITIONED: tuple[Difference, ...] = (
    *SENTENCES,
    (
        'each word is masked with a probability of its own (`train.py`, '
        '`mask_tokens`)',
        'a fixed share of each sequence',
    ),
    (
        'matrices are drawn with a deviation of .02, as those of BERT '
        '(`init_weights`)',
        'the same at width 768, larger below',
    ),
)
DIFFCSE: tuple[Difference, ...] = (
    *CONDITIONED,
    (
        'words of the generator: sampled (paper, §3) or the likeliest '
        '(`diffcse/models.py`)',
        'the likeliest; `--diffcse.sampled`',
    ),
    (
        'the loss counts [CLS] and padding (`diffcse/models.py`, `loss_fct`; '
        'of the paper, Eq. 3, each word)',
        'as the code, but for the loss at padding itself, which is soon 0',
    ),
    (
        'the discriminator ends in a new `Linear` of PyTorch, with a random '
        'bias (`train.py`, `electra_head`)',
        'with matrices of the model, bias 0',
    ),
    (
        'the generator is DistilBERT (`run_diffcse.sh`)',
        '`--diffcse.generator`, or the encoder itself',
    ),
)
INFOCSE_STAGE1: tuple[Difference, ...] = (
    (
        'not trained, but loaded: the weights of Condenser '
        '(`Infocse-bert-base.sh`)',
        'trained as the paper says',
    ),
)
INFOCSE_PAPER: tuple[Difference, ...] = (
    *CONDITIONED,
    (
        'whether stage 2 trains W is not said; the gradient reaches the '
        'encoder through the vector alone',
        'W has no gradient',
    ),
    ('the head is not said', 'that of the code, `--simcse.head=projector`'),
)
INFOCSE_CODE: tuple[Difference, ...] = (
    *CONDITIONED,
    (
        'the output layer begins as that of `mlm`, which stage 1 of Condenser '
        'shares (`train_cls_mlm.py`)',
        'as that of the auxiliary network in stage 1, which has its own '
        'transform',
    ),
    (
        'layer 6 of 24 too (`InfoCSE-bert-large.sh`)',
        'the middle; `--infocse.layer=6`',
    ),
)
INFOXLM_ROWS: tuple[Difference, ...] = (
    (
        'one output layer scores `mmlm` and `tlm` (`models/infoxlm.py`, '
        '`output_layer`)',
        'one for each, which begin alike from XLM-R',
    ),
    (
        'special tokens may be masked (`MaskTokensDataset` of fairseq)',
        'none is',
    ),
    (
        '`tlm` reads `<s> <s> x </s> <s> y </s>` (`tools/para2bin.py`)',
        '`<s> x </s> y </s>`, as its README says',
    ),
    (
        '`xlco` reads `<s> <s> x1 </s> <s> x2 </s>`',
        '`<s> x1 </s> x2 </s>`',
    ),
    (
        'copies of b are negatives (`criterions/xlco.py`)',
        'none in the loss',
    ),
    (
        'Adam with betas of .9 and .98, epsilon 1e-6, decay .01, clip 1, '
        '10,000 updates of warm-up, no dropout (README)',
        '`--optimizer=infoword --warmup_steps=10000 --dropout=0`',
    ),
)
INFOXLM_SHORT: tuple[Difference, ...] = (
    *INFOXLM_ROWS,
    (
        'b of a queue of 131,072 by a momentum encoder, dot products over .25',
        'b of the batch, cosines over .05; `--objectives=infoxlm_paper`',
    ),
)
INFOXLM: tuple[Difference, ...] = (
    *INFOXLM_ROWS,
    (
        'the queue is filled before the first update (`tasks/infoxlm.py`, '
        '`fill_queue`)',
        'it begins empty',
    ),
    (
        'the momentum encoder moves once an update, the queue with each part '
        'of a batch',
        'both once an update',
    ),
)
