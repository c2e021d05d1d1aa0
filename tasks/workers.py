"""Work for several processes: started once, asked again and again.

Lives here: starting, asking and ending them. Not here: what they do
(tasks/pretraining_workers.py, tasks/feature_rows.py). Worker processes never
see a GPU: they import the modules of their tasks and not TensorFlow.
"""
import collections
from concurrent import futures
import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import traceback
import types
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional
from typing import Tuple

from multigpu.errors import UserError


class WorkerDiedError(UserError):
  """A worker process ended in the midst of its work."""

  def __init__(self) -> None:
    super().__init__("a worker process was killed, probably for want of "
                     "memory: pass a smaller --num_workers.")


def count_cores() -> int:
  """Returns the number of cores that this process may use."""
  if hasattr(os, "sched_getaffinity"):  # not on every system
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


class Worker:
  """What a worker process does, in the methods of a subclass.

  It is pickled, so what it holds must be small or shared.
  """

  # Told to each copy by `Workers`.
  _on_made: Optional[Callable[[int], None]] = None

  def report(self, num_new: int) -> None:
    """To be called by the methods with the number of new things made."""
    if self._on_made is not None:
      self._on_made(num_new)

  def report_to(self, on_made: Callable[[int], None]) -> None:
    """Sets what `report` calls."""
    self._on_made = on_made


class Workers:
  """The worker processes; with one worker all is done in this process.

  Attributes:
    on_report: called now and then while this process does the work.
  """

  def __init__(self, worker: Worker, num_workers: int):
    """Starts the processes.

    Args:
      worker: does the work; each process has a copy.
      num_workers: how many; 1 starts none.

    Raises:
      WorkerDiedError: one ended at once.
    """
    self.num_workers = num_workers
    self.on_report: Callable[[], None] = lambda: None
    self._worker = worker
    # Forked workers share their data with this process and start at once, but
    # TensorFlow has threads, which a fork would cut off.
    self._context: Any = multiprocessing.get_context(
        "spawn" if "tensorflow" in sys.modules else "fork")
    self._num_made: Any = self._context.Value("q", 0)
    self._processes: List[Any] = []
    self._connections: List[Any] = []
    # One thread for each process: it sends a task and waits for the result.
    # Each process has a pipe of its own, so that the death of one is the end
    # of its pipe, and never a lock or half a message left behind for others.
    self._threads: Optional[futures.Executor] = None
    self._idle: "queue.Queue[Any]" = queue.Queue()
    if num_workers > 1:
      self._start()
      self._threads = futures.ThreadPoolExecutor(num_workers)
    else:
      worker.report_to(self._report_here)

  @property
  def num_made(self) -> int:
    """What the workers have reported so far."""
    return self._num_made.value

  def submit(self, method: str, argument: Any) -> "futures.Future[Any]":
    """Lets a worker call a method of `Worker`."""
    if self._threads:
      return self._threads.submit(self._ask, method, argument)
    future: "futures.Future[Any]" = futures.Future()
    future.set_result(getattr(self._worker, method)(argument))
    return future

  def map(self, method: str,
          arguments: Iterable[Any]) -> Iterator[Tuple[Any, Any]]:
    """Yields (argument, result of the method) in the order of the arguments.

    Some are worked on ahead; few are in memory at once.
    """
    ahead: Deque[Tuple[Any, Any]] = collections.deque()
    for argument in arguments:
      ahead.append((argument, self.submit(method, argument)))
      if len(ahead) > (2 * self.num_workers if self._threads else 0):
        argument, future = ahead.popleft()
        yield argument, future.result()
    for argument, future in ahead:
      yield argument, future.result()

  def _start(self) -> None:
    try:
      with _hidden_main():
        for _ in range(self.num_workers):
          self._start_one()
    except OSError as error:  # it ended before it had read its start-up data
      self._stop()
      raise WorkerDiedError() from error

  def _start_one(self) -> None:
    here, there = self._context.Pipe()
    self._connections.append(here)
    self._idle.put(here)
    # A fork copies our ends of all pipes. While any copy is open a worker does
    # not notice that this process has ended.
    is_fork = self._context.get_start_method() == "fork"
    process = self._context.Process(
        target=_serve, daemon=True,
        args=(there, self._worker, self._num_made,
              tuple(self._connections) if is_fork else ()))
    process.start()
    there.close()
    self._processes.append(process)

  def _ask(self, method: str, argument: Any) -> Any:
    connection = self._idle.get()
    try:
      connection.send((method, argument))
      result, error, details = connection.recv()
    except (EOFError, OSError) as died:
      raise WorkerDiedError() from died
    finally:
      self._idle.put(connection)
    if isinstance(error, UserError):
      raise error
    if error is not None:
      raise error from RuntimeError("in a worker process:\n" + details)
    return result

  def _report_here(self, num_new: int) -> None:
    self._num_made.value += num_new
    self.on_report()

  def _stop(self) -> None:
    for process in self._processes:
      process.terminate()
    self._join()

  def _join(self) -> None:
    if self._threads:
      self._threads.shutdown()
    for connection in self._connections:
      connection.close()
    for process in self._processes:
      process.join()

  def __enter__(self) -> "Workers":
    return self

  def __exit__(self, error_type: Any, error: Any, trace: Any) -> None:
    if error_type is None:
      self._join()
    else:
      self._stop()


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
  """Keeps multiprocessing from importing the main module in each process.

  The main module is a run script, and would bring TensorFlow with it.
  """
  main = sys.modules["__main__"]
  sys.modules["__main__"] = types.ModuleType("__main__")
  try:
    yield
  finally:
    sys.modules["__main__"] = main


def _serve(connection: Any, worker: Worker, num_made: Any,
           inherited: Tuple[Any, ...]) -> None:
  """The life of a worker process: ends when the pipe does."""
  # Ctrl-C goes to all processes; the main one then ends the others.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # A forked process would have the handler of the main one.
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  for other in inherited:
    other.close()

  def report(num_new: int) -> None:
    with num_made.get_lock():
      num_made.value += num_new

  worker.report_to(report)
  with contextlib.suppress(EOFError, OSError):
    while True:
      method, argument = connection.recv()
      answer = _call(getattr(worker, method), argument)
      try:
        connection.send(answer)
      except (TypeError, AttributeError, ValueError):  # cannot be pickled
        details = answer[2] or traceback.format_exc()
        connection.send((None, RuntimeError("no answer"), details))


def _call(function: Callable[[Any], Any], argument: Any
          ) -> Tuple[Any, Optional[Exception], str]:
  try:
    return function(argument), None, ""
  except Exception as error:  # noqa: BLE001 (raised again in the main process)
    return None, error, traceback.format_exc()
