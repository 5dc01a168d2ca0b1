"""--precision=auto by what a device says of itself, as files written out."""

import contextlib
import io
import pathlib
import platform
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import commands
from infoword_tf.training import record
from tests.export import workdirs

# /proc/cpuinfo of one core of each, shortened; flags as they stand there.
INTEL = '''processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
flags\t\t: fpu sse4_2 avx2 avx512f avx512_vnni avx_vnni avx512_bf16 amx_bf16 \
avx512_fp16 amx_tile amx_int8
vmx flags\t: vnmi preemption_timer
bugs\t\t: spectre_v1
'''
ICE_LAKE = '''vendor_id\t: GenuineIntel
flags\t\t: fpu sse4_2 avx2 avx512f avx512_vnni
'''
ZEN4 = '''processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9B14
flags\t\t: fpu sse4_2 avx2 avx512f avx512_bf16 avx512_vnni
'''
ZEN3 = '''processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 7B13 \u00ae
flags\t\t: fpu sse4_2 avx2 vaes vpclmulqdq rdpid fsrm
bugs\t\t: avx512_bf16
'''
ARM = '''processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd evtstrm aes bf16 i8mm sve svebf16
CPU architecture: 8
'''
NEITHER = 'the processor has no amx_bf16 and no avx512_bf16: float32'
UNREAD = 'what the processor can do cannot be read here: float32'


class ProcessorTest(parameterized.TestCase):
    @parameterized.named_parameters(
        ('amx', INTEL, 'the processor has amx_bf16 and avx512_bf16: '
         'mixed_bfloat16'),
        ('zen4', ZEN4, 'the processor has avx512_bf16: mixed_bfloat16'),
        ('zen3', ZEN3, NEITHER),
        ('ice_lake', ICE_LAKE, NEITHER),
        ('arm', ARM, NEITHER),
        ('says_nothing', 'processor\t: 0\n', UNREAD),
        ('no_such_file', None, UNREAD),
    )  # fmt: skip
    def test_by_its_instructions(self, text, expected):
        path = pathlib.Path(self.create_tempdir().full_path) / 'cpuinfo'
        if text is not None:
            path.write_text(text, encoding='latin-1')
        with mock.patch.object(record, 'CPUINFO', path):
            for device in ('/cpu:0', None):
                self.assertEqual(decided(device), f'precision: {expected}\n')

    @parameterized.parameters(
        (INTEL, 'Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz',
         'amx_bf16 and avx512_bf16'),
        (ZEN4, 'AMD EPYC 9B14', 'avx512_bf16'),
        (ICE_LAKE, platform.machine(), None),
    )  # fmt: skip
    def test_what_people_are_told(self, text, name, instructions):
        """By `load` in a Python program, unless it names a precision."""
        path = pathlib.Path(self.create_tempdir().full_path) / 'cpuinfo'
        path.write_text(text)
        workdir, shown = workdirs.shared(), io.StringIO()
        with (
            mock.patch.object(record, 'CPUINFO', path),
            mock.patch.object(commands, 'runs', lambda: False),
            contextlib.redirect_stdout(shown),
        ):
            self.assertStartsWith(record.processor_name(), f'{name}, ')
            infoword_tf.load(workdir, 'float32')
            infoword_tf.load(workdir)
        expected = ''
        if instructions:
            expected = (
                f'precision: the processor has {instructions}: faster with '
                "infoword_tf.load(..., 'mixed_bfloat16'), see docs/serving.md\n"
            )
        self.assertEqual(shown.getvalue(), expected)


class DeviceTest(parameterized.TestCase):
    """GPUs and TPUs that TensorFlow is made to report."""

    @parameterized.named_parameters(
        ('new', [(9, 0)], 'GPU 0 has compute capability 9.0: mixed_bfloat16'),
        ('least', [(8, 0)], 'GPU 0 has compute capability 8.0: '
         'mixed_bfloat16'),
        ('old', [(7, 5)], 'GPU 0 has compute capability 7.5: float32'),
        ('weakest', [(8, 6), (7, 0)],
         'GPU 1 has compute capability 7.0: float32'),
        ('others', [None], 'GPU 0 says no compute capability: float32'),
    )  # fmt: skip
    def test_gpus(self, capabilities, expected):
        details = {
            f'gpu{i}': {'device_name': f'GPU {i}'}
            | ({'compute_capability': actual} if actual else {})
            for i, actual in enumerate(capabilities)
        }
        with (
            mock.patch.object(
                tf.config, 'get_visible_devices', return_value=list(details)
            ),
            mock.patch.object(
                tf.config.experimental, 'get_device_details', details.get
            ),
        ):
            for device in ('/job:localhost/replica:0/task:0/device:GPU:0',
                           None):  # fmt: skip
                self.assertEqual(decided(device), f'precision: {expected}\n')

    def test_tpus(self):
        self.assertEqual(
            decided('/job:worker/replica:0/task:0/device:TPU:0'),
            'precision: a TPU multiplies bfloat16: mixed_bfloat16\n',
        )


def decided(device):
    """Returns the printed line, which ends with the decision."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        chosen = record.faster_precision(device)
    line = shown.getvalue()
    assert line.endswith(f': {chosen}\n'), (line, chosen)
    return line
