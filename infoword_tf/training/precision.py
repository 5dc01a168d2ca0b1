"""The precision of a run: read off the device, never timed.

Timing would depend on whatever else runs; without it the same command on the
same machine is the same run.
"""

import pathlib

from infoword_tf.config import FILE, Config

CPUINFO = pathlib.Path('/proc/cpuinfo')
# Products of bfloat16 by Linux's names. Emulated ones are slower than float32.
INSTRUCTIONS = 'amx_bf16', 'avx512_bf16'
CAPABILITY = 8, 0  # of the first GPUs of NVIDIA that have them


def instructions() -> frozenset[str] | None:
    """Returns the processor's instruction sets by Linux's names; None: unknown.
    """
    try:
        text = CPUINFO.read_text(errors='replace')
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(':')
        if name.strip() in ('flags', 'Features'):  # of x86, of ARM
            return frozenset(value.split())
    return None


def _of_processor() -> tuple[str, bool]:
    """Describes the processor; and whether bfloat16 is multiplied natively."""
    known = instructions()
    if known is None:
        return 'what the processor can do cannot be read here', False
    names = [name for name in INSTRUCTIONS if name in known]
    if not names:
        return f'the processor has no {" and no ".join(INSTRUCTIONS)}', False
    return f'the processor has {" and ".join(names)}', True


def _of_gpus() -> tuple[str, bool]:
    """Describes the weakest visible GPU, as `_of_processor`."""
    import tensorflow as tf

    details = [
        tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.get_visible_devices('GPU')
    ]
    weakest = min(details, key=lambda x: x.get('compute_capability', (0, 0)))
    name = weakest.get('device_name', 'a GPU')
    capability = weakest.get('compute_capability')
    if capability is None:
        return f'{name} says no compute capability', False
    words = '.'.join(map(str, capability))
    return f'{name} has compute capability {words}', capability >= CAPABILITY


def faster(device: str | None = None) -> str:
    """Returns 'mixed_bfloat16' if the device multiplies bfloat16 natively."""
    import tensorflow as tf

    if device is not None:
        kind = tf.DeviceSpec.from_string(device).device_type
    else:
        kind = 'GPU' if tf.config.get_visible_devices('GPU') else 'CPU'
    if kind == 'TPU':
        device_is, native = 'a TPU multiplies bfloat16', True
    else:
        device_is, native = (
            _of_gpus() if kind == 'GPU' else _of_processor()
        )
    chosen = 'mixed_bfloat16' if native else 'float32'
    print(f'precision: {device_is}: {chosen}', flush=True)
    return chosen


def decide(chosen: str, workdir: pathlib.Path, device: str) -> str:
    """Returns the dtype policy; decides `auto` once for a workdir."""
    if chosen != 'auto':
        return chosen
    if (workdir / FILE).exists():
        return Config.read(workdir).precision
    return faster(device)
