"""What the processes of benchmarks/train_step.py have in common."""
import resource

import numpy as np


def make_rows(batch, seq_length, vocab_size):
  """Random rows, from half full to full: {name: int32 array}."""
  random = np.random.RandomState(0)
  shape = (batch, seq_length)
  lengths = random.randint(seq_length // 2, seq_length + 1, [batch, 1])
  mask = (np.arange(seq_length) < lengths).astype(np.int32)
  return {"input_ids": random.randint(0, vocab_size, shape).astype(np.int32),
          "input_mask": mask, "segment_ids": mask,
          "start": np.ones(batch, np.int32), "end": np.ones(batch, np.int32)}


def peak_memory_mb():
  """The most memory that this process had, in MB."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
