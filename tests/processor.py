"""The processor of the tests: how far its products are rounded."""

from infoword_tf.training import precision

# With AVX512 a product of small matrices does not depend on their neighbours,
# and bfloat16 is summed in float32. oneDNN's kernels for less do neither.
AVX512 = 'avx512f' in (precision.instructions() or ())
