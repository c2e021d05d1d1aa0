"""The word about a first step that does not end."""
import logging
import time

from multigpu import waiting


def wait_for(condition, seconds=10):
  end = time.monotonic() + seconds
  while not condition() and time.monotonic() < end:
    time.sleep(0.01)
  return condition()


def test_case_68_a_hanging_first_step_is_spoken_of(caplog):
  hook = waiting.FirstStepHook(3, "GPU", every_secs=0.05)
  with caplog.at_level(logging.WARNING):
    hook.before_run(None)
    assert wait_for(lambda: len(caplog.records) >= 2)
    hook.after_run(None, None)
  text = caplog.records[0].getMessage()
  assert "the first step has taken" in text
  assert "--all_reduce=hierarchical_copy" in text
  hook._thread.join(10)
  said = len(caplog.records)
  hook.before_run(None)
  time.sleep(0.2)
  assert len(caplog.records) == said  # later steps are not watched


def test_the_advice_fits_the_devices(caplog):
  for num_replicas, kind in ((1, "GPU"), (4, "CPU")):
    hook = waiting.FirstStepHook(num_replicas, kind, every_secs=0.05)
    with caplog.at_level(logging.WARNING):
      hook.before_run(None)
      assert wait_for(lambda: caplog.records)
      hook.end(None)
    hook._thread.join(10)
    assert "--all_reduce" not in caplog.text
    assert ("newer than itself" in caplog.text) == (kind == "GPU")
    caplog.clear()
