"""The operations that TensorFlow Serving 2.12 to 2.20 can run.

A server loads a graph only if every operation in it, also in functions that
nobody calls, is linked into its binary. Serving links all of TensorFlow and,
as `ops_lib`, the operations of one tensorflow_text:

    Serving            tensorflow_text   lacks, compared with later
    2.12.0 to 2.19.1   2.12.1            RoundRobin trimmers, utf8_binarize
    2.20.0             2.20.0            -

So an export may hold what TensorFlow 2.12 and tensorflow_text 2.12.1 know:
`CORE` and `TEXT` are those of them that exports need. A new encoder may need
more; `make serving-compat` loads an export in these very versions and shows
whether an operation may join the list.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

# Of TensorFlow, in 2.12 as in 2.20.
CORE = frozenset("""
    Abs AddV2 All Any ArgMax AsString Assert AssignVariableOp
    BatchMatMulV2 BiasAdd BroadcastTo Cast ConcatV2 Const Cos Cumsum DecodeRaw
    DenseBincount DisableCopyOnRead Equal Erf Erfc Exp ExpandDims Fill FloorDiv
    FloorMod GatherV2 Greater GreaterEqual HashTableV2 Identity If
    IsFinite Less LessEqual Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr
    LookupTableFindV2 LookupTableImportV2 LowerBound MatMul Max Maximum
    Mean MergeV2Checkpoints Min Minimum Mul Neg NoOp NotEqual OnesLike
    Pack Pad PadV2 PartitionedCall Placeholder Prod RaggedGather
    RaggedRange RaggedTensorToTensor Range ReadVariableOp RealDiv
    ReduceJoin Relu Reshape ResourceGather RestoreV2 ReverseV2 Rsqrt
    SaveV2 ScatterNd Select SelectV2 Shape ShardedFilename Sigmoid Sin Size
    Slice Softmax SparseSegmentSumWithNumSegments Split SplitV Sqrt Square
    Squeeze StatefulPartitionedCall StatelessIf StatelessWhile
    StaticRegexFullMatch StaticRegexReplace StopGradient StridedSlice
    StringJoin StringLength StringLower StringSplitV2 Sub Substr Sum Tanh
    TensorListConcatV2 TensorListFromTensor TensorListGetItem
    TensorListReserve TensorListSetItem TensorListStack
    TensorScatterUpdate Tile TopKV2 Transpose UnicodeDecode
    UnicodeDecodeWithOffsets UnicodeEncode Unique Unpack
    UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentSum UpperBound
    VarHandleOp Where While ZerosLike
""".split())

# Of tensorflow_text: `FastBertNormalizer` and `FastWordpieceTokenizer`, the
# model of `SentencepieceTokenizer`, without and with offsets,
# `WhitespaceTokenizer`, and NFC. They are in the files fast_bert_normalizer,
# fast_wordpiece_tokenizer, sentencepiece_tokenizer, whitespace_tokenizer_v2 and
# normalize_ops below.
TEXT = frozenset("""
    FastBertNormalize FastWordpieceTokenizeWithOffsets FindSourceOffsets
    NormalizeUTF8 NormalizeUTF8WithOffsetsMap SentencepieceOp
    SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp
    TFText>WhitespaceTokenizeWithOffsetsV2
""".split())

# The contents of each `ops_lib` by the names of files in the wheel,
# `python/ops/_NAME.so`; what only metrics need lies elsewhere.
_TEXT_2_12 = tuple("""
    boise_offset_converter byte_splitter constrained_sequence_op
    fast_bert_normalizer fast_sentencepiece_tokenizer fast_wordpiece_tokenizer
    mst_ops ngrams_op normalize_ops phrase_tokenizer regex_split_ops
    sentence_breaking_ops sentencepiece_tokenizer
    split_merge_from_logits_tokenizer split_merge_tokenizer
    state_based_sentence_breaker_op unicode_script_tokenizer
    whitespace_tokenizer whitespace_tokenizer_v2 wordpiece_tokenizer
""".split())
TEXT_LIBRARIES: dict[str, tuple[str, ...]] = {
    '2.12 to 2.19': _TEXT_2_12,
    '2.20': (*_TEXT_2_12, 'trimmer_ops', 'utf8_binarize_op'),
}

# Attributes that ask for what a server may not have: XLA for its device, and
# gradients that are looked up by name.
REFUSED = frozenset({'_XlaMustCompile', '_gradient_op_type'})


def nodes(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Yields the operations of a version: name of the function, NodeDef.

    The name is '' for operations of the graph itself.
    """
    graph = read(path).graph_def
    for node in graph.node:
        yield '', node
    for function in graph.library.function:
        for node in function.node_def:
            yield function.signature.name, node


def read(path: pathlib.Path) -> Any:
    """Reads the MetaGraphDef of a version.

    Raises:
        FileNotFoundError: it is no SavedModel.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    file = pathlib.Path(path) / 'saved_model.pb'
    if not file.is_file():
        raise FileNotFoundError(
            f'{path} has no saved_model.pb; name the folder of a version, '
            'such as DIR/1'
        )
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(file.read_bytes())
    return saved.meta_graphs[0]


def unservable(path: pathlib.Path) -> list[str]:
    """Lists operations and attributes that Serving 2.12 cannot run.

    One line for each kind of operation or attribute; [] if it can be served.
    """
    lines = set()
    for function, node in nodes(path):
        where = function or 'the graph'
        if node.op not in CORE | TEXT:
            lines.add(f'operation {node.op} in {where}')
        lines |= {f'attribute {x} in {where}' for x in REFUSED & {*node.attr}}
    for function in read(path).graph_def.library.function:
        lines |= {
            f'attribute {name} of {function.signature.name}'
            for name in REFUSED & {*function.attr}
        }
    return sorted(lines)
