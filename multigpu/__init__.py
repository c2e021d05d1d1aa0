"""Everything that knows about devices: flags, strategy, training, inference.

To be imported before TensorFlow by whoever wants its fast kernels on the CPU.
"""
import os

# TensorFlow 2 reads it when it is imported. By itself it takes oneDNN's kernels
# only on processors with AVX512_VNNI or AMX, though matrix products gain from
# them with AVX2 as well: about an eighth.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
