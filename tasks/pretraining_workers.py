"""What the processes that make pre-training data do, and the progress bar."""
from concurrent import futures
import sys
import time
from typing import Any

import tqdm

from tasks import pretraining_corpus as corpus
from tasks import workers
from tasks.pretraining_pairs import InstanceSettings
from tasks.pretraining_windows import WindowResult, WindowTask, write_window
from tasks.workers import Workers

_SECONDS_BETWEEN_LOOKS = 0.1


class Worker(workers.Worker):
  """Tokenizes and makes records; reports the number of new instances."""

  def __init__(self, vocabulary: corpus.Vocabulary, do_lower_case: bool,
               settings: InstanceSettings):
    self._vocabulary = vocabulary
    self._settings = settings
    self._tokenizer = corpus.IdTokenizer(vocabulary.ids, do_lower_case)

  def tokenize(self, block: corpus.Block) -> corpus.TokenizedBlock:
    """Tokenizes a block of text."""
    return corpus.tokenize_block(block, self._tokenizer)

  def write_window(self, task: WindowTask) -> WindowResult:
    """Makes the records of a window."""
    return write_window(task, self._vocabulary, self._settings, self.report)


class Progress:
  """The progress bar: text read, instances made."""

  def __init__(self, num_bytes: int, processes: Workers):
    self._processes = processes
    self._bar = tqdm.tqdm(
        total=num_bytes, desc="text", unit="B", unit_scale=True,
        file=sys.stderr,
        # A log file gets a line now and then, a terminal a live bar.
        mininterval=0.2 if sys.stderr.isatty() else 10)
    self._next_look = time.time() + self._bar.mininterval
    processes.on_report = self._look

  def __enter__(self) -> "Progress":
    return self

  def __exit__(self, *error: Any) -> None:
    self._show_instances()
    self._bar.close()

  def add_bytes(self, num_bytes: int) -> None:
    """So many bytes more have been read and tokenized."""
    self._bar.update(num_bytes)

  def wait(self, future: "futures.Future[Any]") -> Any:
    """Waits for a worker and keeps the bar alive."""
    while not future.done():
      futures.wait([future], _SECONDS_BETWEEN_LOOKS)
      self._look()
    return future.result()

  def _look(self) -> None:
    if time.time() >= self._next_look:
      self._next_look = time.time() + self._bar.mininterval
      self._show_instances()
      self._bar.refresh()

  def _show_instances(self) -> None:
    self._bar.set_postfix(instances=self._processes.num_made, refresh=False)
