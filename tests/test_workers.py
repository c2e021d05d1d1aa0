"""Worker processes: order, errors, and what happens when one dies."""
import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from conftest import ROOT
from multigpu.errors import UserError
from tasks import workers

BIG = 1 << 20  # more than a pipe holds


class Sample(workers.Worker):
  """Does what the tests ask for."""

  def square(self, number):
    self.report(1)
    return number * number

  def names(self, _):
    return sorted(sys.modules)

  def fail(self, message):
    raise UserError(message)

  def crash(self, _):
    return {}["missing"]

  def unpicklable(self, _):
    return lambda: None

  def die(self, _):
    os.kill(os.getpid(), signal.SIGKILL)

  def die_if_odd(self, number):
    if number % 2:
      os.kill(os.getpid(), signal.SIGKILL)
    return b"x" * BIG

  def send_and_die(self, _):
    """Dies when a part of its result is in the pipe."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    return Slow()

  def pid(self, _):
    return os.getpid()


class Slow:
  """Cannot be sent before the alarm."""

  def __reduce__(self):
    signal.pause()
    return Slow, ()


@pytest.fixture(params=["fork", "spawn"])
def start_method(request, monkeypatch):
  """Without TensorFlow workers are forked, with it they are spawned."""
  if request.param == "fork":
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
  else:
    monkeypatch.setitem(sys.modules, "tensorflow", multiprocessing)
  return request.param


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_results_come_in_order(start_method, num_workers):
  with workers.Workers(Sample(), num_workers) as pool:
    found = list(pool.map("square", range(20)))
    assert pool.num_made == 20
  assert found == [(n, n * n) for n in range(20)]


def test_workers_import_neither_tensorflow_nor_the_program(tmp_path):
  program = tmp_path / "program.py"
  program.write_text("\n".join([
      "import sys",
      "print('imported', flush=True)",
      "sys.path[:0] = [%r, %r]" % (str(ROOT), str(ROOT / "tests")),
      "import test_workers",
      "import tensorflow.compat.v1",
      "if __name__ == '__main__':",
      "  sample = test_workers.Sample()",
      "  with test_workers.workers.Workers(sample, 2) as pool:",
      "    for _ in range(4):",
      "      names = pool.submit('names', None).result()",
      "      assert 'test_workers' in names",
      "      assert 'tensorflow' not in names",
      "  assert sys.modules['__main__'].sample is sample"]))
  completed = subprocess.run([sys.executable, str(program)], timeout=120,
                             check=True, stdout=subprocess.PIPE)
  assert completed.stdout.split() == [b"imported"]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_errors_come_out_of_workers(start_method, num_workers):
  for method, error, text in (("fail", UserError, "line 3"),
                              ("crash", KeyError, "missing")):
    with pytest.raises(error, match=text):
      with workers.Workers(Sample(), num_workers) as pool:
        list(pool.map(method, ["line 3"] * 9))


def test_the_place_of_a_programming_error_is_shown():
  with workers.Workers(Sample(), 2) as pool:
    error = pool.submit("crash", None).exception()
    assert "in crash" in str(error.__cause__)
    assert "pickle" in str(pool.submit("unpicklable", 0).exception().__cause__)
    assert pool.submit("square", 3).result() == 9  # it goes on


@pytest.mark.parametrize("method, argument", [
    ("die", None), ("die", b"x" * BIG), ("die_if_odd", 1),
    ("send_and_die", None)])
def test_a_dead_worker_is_an_error(start_method, method, argument):
  with pytest.raises(UserError, match="killed.*smaller --num_workers"):
    with workers.Workers(Sample(), 2) as pool:
      list(pool.map(method, [argument] * 9))


def test_death_between_tasks_is_noticed(start_method):
  with pytest.raises(UserError, match="killed"):
    with workers.Workers(Sample(), 2) as pool:
      os.kill(pool.submit("pid", None).result(), signal.SIGKILL)
      list(pool.map("square", range(20)))


def test_others_are_not_left_behind(start_method):
  """One of two dies while the other sends much."""
  with pytest.raises(UserError, match="killed"):
    with workers.Workers(Sample(), 2) as pool:
      list(pool.map("die_if_odd", [0, 0, 0, 1, 0, 0, 0, 0]))
  assert not multiprocessing.active_children()


@pytest.mark.parametrize("load_tensorflow", [False, True])
def test_workers_end_with_a_killed_program(load_tensorflow):
  """Each has only its own pipe open, and sees the end of it."""
  script = "\n".join([
      "import os, sys",
      "sys.path[:0] = [%r, %r]" % (str(ROOT), str(ROOT / "tests")),
      "sys.modules['tensorflow'] = os" if load_tensorflow else "",
      "import test_workers",
      "pool = test_workers.workers.Workers(test_workers.Sample(), 2)",
      "list(pool.map('square', range(4)))",
      "os.kill(os.getpid(), 9)"])
  # The output ends when the last process that can write to it has ended.
  completed = subprocess.run([sys.executable, "-c", script], timeout=60,
                             stdout=subprocess.PIPE)
  assert completed.returncode == -signal.SIGKILL
