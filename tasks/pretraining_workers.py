"""The processes that make pre-training data, and the progress bar."""
from concurrent import futures
import multiprocessing
import signal
import sys
import time
from typing import Any, Callable, Optional

import tqdm

from multigpu.errors import UserError
from tasks import pretraining_corpus as corpus
from tasks.pretraining_pairs import InstanceSettings
from tasks.pretraining_windows import WindowResult, WindowTask, write_window

_SECONDS_BETWEEN_LOOKS = 0.1


def _ignore(num_new_instances: int) -> None:
  pass


class Worker:
  """What a worker process does; one lives in each of them."""

  def __init__(self, vocabulary: corpus.Vocabulary, do_lower_case: bool,
               settings: InstanceSettings):
    self._vocabulary = vocabulary
    self._settings = settings
    self._tokenizer = corpus.IdTokenizer(vocabulary.ids, do_lower_case)
    # Called with the number of new instances.
    self.report: Callable[[int], None] = _ignore

  def tokenize(self, block: corpus.Block) -> corpus.TokenizedBlock:
    """Tokenizes a block of text."""
    return corpus.tokenize_block(block, self._tokenizer)

  def write_window(self, task: WindowTask) -> WindowResult:
    """Makes the records of a window."""
    return write_window(task, self._vocabulary, self._settings, self.report)


_worker: Optional[Worker] = None  # of this process, if it is a worker


def _start_worker(worker: Worker, num_instances: Any, stop: Any) -> None:
  global _worker
  _worker = worker
  # Ctrl-C goes to all processes; the main one then sets `stop`.
  signal.signal(signal.SIGINT, signal.SIG_IGN)

  def report(num_new_instances: int) -> None:
    with num_instances.get_lock():
      num_instances.value += num_new_instances
    if stop.is_set():
      raise UserError("stopped, because something else went wrong")

  worker.report = report


def _call_worker(method: str, argument: Any) -> Any:
  return getattr(_worker, method)(argument)


class Workers:
  """The worker processes; with one worker all is done in this process.

  Attributes:
    on_report: called now and then while this process does the work.
  """

  def __init__(self, worker: Worker, num_workers: int):
    self.num_workers = num_workers
    self.on_report: Callable[[], None] = lambda: None
    self._worker = worker
    # Forked workers share the vocabulary with this process and start at once,
    # but TensorFlow (loaded for gs:// and the like) has threads, which a fork
    # would cut off.
    context = multiprocessing.get_context(
        "spawn" if "tensorflow" in sys.modules else "fork")
    self._num_instances: Any = context.Value("q", 0)
    self._stop = context.Event()
    self._executor: Optional[futures.Executor] = None
    if num_workers > 1:
      self._executor = futures.ProcessPoolExecutor(
          num_workers, context, _start_worker,
          (worker, self._num_instances, self._stop))
    else:
      worker.report = self._report_here

  @property
  def num_instances(self) -> int:
    """Instances that the workers have made so far."""
    return self._num_instances.value

  def submit(self, method: str, argument: Any) -> "futures.Future[Any]":
    """Lets a worker call a method of `Worker`."""
    if self._executor:
      return self._executor.submit(_call_worker, method, argument)
    future: "futures.Future[Any]" = futures.Future()
    future.set_result(getattr(self._worker, method)(argument))
    return future

  def _report_here(self, num_new_instances: int) -> None:
    self._num_instances.value += num_new_instances
    self.on_report()

  def __enter__(self) -> "Workers":
    return self

  def __exit__(self, error_type: Any, error: Any, traceback: Any) -> None:
    if error_type is not None:
      self._stop.set()
    if self._executor:
      self._executor.shutdown()


class Progress:
  """The progress bar: text read, instances made."""

  def __init__(self, num_bytes: int, workers: Workers):
    self._workers = workers
    self._bar = tqdm.tqdm(
        total=num_bytes, desc="text", unit="B", unit_scale=True,
        file=sys.stderr,
        # A log file gets a line now and then, a terminal a live bar.
        mininterval=0.2 if sys.stderr.isatty() else 10)
    self._next_look = time.time() + self._bar.mininterval
    workers.on_report = self._look

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
    self._bar.set_postfix(instances=self._workers.num_instances, refresh=False)
