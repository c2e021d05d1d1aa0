"""Examples -> serialized rows, by one process or several, in their order.

What a row is, the encoder of a task knows (tasks/squad_rows.py,
tasks/classifier_pipeline.py).
"""
import sys
from typing import Any, Iterator, List, NamedTuple, Sequence

import tqdm

from tasks.workers import Worker, Workers

# Examples that a process makes rows of at a time: tens of milliseconds.
CHUNK_EXAMPLES = 128


class RowEncoder(Worker):
  """Makes rows; each process has one."""

  def encode(self, examples: List[Any]) -> List[bytes]:
    """Returns the rows of some examples (see multigpu.examples).

    They must not depend on what the encoder has seen before.
    """
    raise NotImplementedError

  def pack(self, examples: List[Any]) -> List[Any]:
    """Returns what the examples are sent to another process as, one by one."""
    return examples

  def unpack(self, packed: List[Any]) -> List[Any]:
    """Returns the examples."""
    return packed

  def encode_packed(self, packed: List[Any]) -> List[bytes]:
    """`encode` in another process."""
    return self.encode(self.unpack(packed))


class Labor(NamedTuple):
  """How many processes may work, and what is worth their start."""
  num_workers: int = 1
  # With fewer examples this process does all: starting the others takes longer
  # than they would save.
  min_examples: int = 1
  unit: str = " examples"  # in the progress bar


def iterate_rows(examples: Sequence[Any], encoder: RowEncoder,
                 labor: Labor) -> Iterator[bytes]:
  """Makes the rows of all examples, in their order.

  They are the same for any number of workers.

  Raises:
    UserError: an example that cannot be used, the first such one; a worker
      process was killed.
  """
  num_chunks = -(-len(examples) // CHUNK_EXAMPLES)
  num_workers = 1
  if len(examples) >= labor.min_examples:
    num_workers = max(1, min(labor.num_workers, num_chunks))
  chunks: Iterator[Any] = (
      list(examples[start:start + CHUNK_EXAMPLES])
      for start in range(0, len(examples), CHUNK_EXAMPLES))
  method = "encode"
  if num_workers > 1:
    method, chunks = "encode_packed", map(encoder.pack, chunks)
  with Workers(encoder, num_workers) as workers:
    with tqdm.tqdm(total=len(examples), desc="features", unit=labor.unit,
                   file=sys.stderr,
                   # A log file gets a line now and then, a terminal a live bar.
                   mininterval=0.2 if sys.stderr.isatty() else 10) as progress:
      for chunk, rows in workers.map(method, chunks):
        yield from rows
        progress.update(len(chunk))
