"""Steps, and the lines that a training run prints."""
import logging

import numpy as np
import pytest

from multigpu import hooks
from multigpu import training
from multigpu.errors import UserError


@pytest.mark.parametrize("num_replicas, steps, warmup", [
    (1, 300, 30), (2, 150, 15), (4, 75, 7)])
def test_case_65_epochs_stay_epochs(num_replicas, steps, warmup):
  plan = training.plan_training(1000, 3.0, 0.1, 10, num_replicas)
  assert plan.global_batch_size == 10 * num_replicas
  assert (plan.num_train_steps, plan.num_warmup_steps) == (steps, warmup)


def test_less_than_one_step_is_an_error_with_the_arithmetic():
  with pytest.raises(UserError) as error:
    training.plan_training(11, 3.0, 0.1, 64, 2)
  for part in ("11 examples", "--num_train_epochs=3.0", "global batch 128",
               "--train_batch_size=64 x 2", "0 training steps"):
    assert part in str(error.value)


class FakeContext:
  """A session whose global step is what the test says."""

  def __init__(self):
    self.session = self
    self.results = (2.5,)
    self.step = 0

  def run(self, _):
    return self.step


def test_progress_counts_examples_of_all_replicas(caplog):
  now = [0.0]
  hook = hooks.ProgressHook(hooks.ProgressSettings(
      num_train_steps=100, global_batch_size=24, num_replicas=2,
      every_secs=10), clock=lambda: now[0])
  hook._step = None
  context = FakeContext()
  with caplog.at_level(logging.INFO):
    for step, time in ((1, 60.0), (2, 65.0), (6, 70.0), (100, 71.0)):
      context.step, now[0] = step, time
      hook.after_run(context, context)
  assert [record.getMessage() for record in caplog.records] == [
      "step 1/100  loss 2.5000",
      # 5 steps of 24 rows in 10 s, without the minute of the first step.
      "step 6/100  loss 2.5000  12.0 examples/s (6.0 per GPU)  ETA 0:03:08",
      "step 100/100  loss 2.5000  2256.0 examples/s (1128.0 per GPU)  "
      "ETA 0:00:00"]


@pytest.mark.parametrize("loss, norm, scale, stops", [
    (2.5, [3.0], [], False),
    (2.5, [np.nan], [], True),
    (2.5, [np.inf], [], True),
    (np.nan, [3.0], [], True),
    (np.inf, [], [], True),
    # Half precision: the update was skipped, the next scale may do.
    (2.5, [np.inf], [32768.0], False),
    (2.5, [np.nan], [1.0], True),
    (np.nan, [np.nan], [32768.0], True)])
def test_what_is_not_finite_stops_the_run(tmp_path, loss, norm, scale, stops):
  hook = hooks.FiniteHook(str(tmp_path))
  hook._step = None
  context = FakeContext()
  context.step = 7
  context.results = dict(loss=loss, norm=norm, scale=scale)
  if not stops:
    hook.after_run(context, context)
    return
  with pytest.raises(UserError) as error:
    hook.after_run(context, context)
  assert str(error.value).startswith("step 7: the loss is %g and" % loss)
  assert "There is no checkpoint yet." in str(error.value)
