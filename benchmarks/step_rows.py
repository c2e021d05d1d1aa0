"""What the processes that run training steps have in common."""
import resource
import time

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


def time_steps(step, num_steps):
  """Seconds of each step but the first one, uncounted: [[wall, CPU]]."""
  step()
  figures = []
  for _ in range(num_steps):
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    figures.append([time.perf_counter() - wall, time.process_time() - cpu])
  return figures


def peak_memory_mb():
  """The most memory that this process had, in MB."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
