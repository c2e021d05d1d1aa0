"""SQuAD on N replicas trains what one device trains on the global batch."""
import pytest
import tensorflow.compat.v1 as tf

import golden_training
from tasks.squad_head import squad_head

tf.logging.set_verbosity(tf.logging.ERROR)


@pytest.mark.slow
@pytest.mark.parametrize("size, num_replicas", [
    ("tiny", 1), ("tiny", 2), pytest.param("tiny", 4, marks=pytest.mark.long),
    ("strong", 1), ("strong", 2), ("strong", 4)])
def test_six_steps(shared, tmp_path, size, num_replicas):
  golden, checkpoint = golden_training.load(shared, "squad_" + size)
  steps = golden_training.train(golden, checkpoint, squad_head, shared,
                                str(tmp_path), num_replicas)
  assert len(steps) == golden_training.STEPS
  golden_training.check_steps(golden, steps)
  golden_training.check_checkpoint(golden, str(tmp_path), size == "strong")


@pytest.mark.slow
@pytest.mark.parametrize("before, after", [
    (1, 2), pytest.param(4, 2, marks=pytest.mark.long)])
def test_resume_with_another_number_of_replicas(shared, tmp_path, before,
                                                after):
  golden, checkpoint = golden_training.load(shared, "squad_strong")
  golden_training.train(golden, checkpoint, squad_head, shared, str(tmp_path),
                        before, last_step=3)
  steps = golden_training.train(golden, checkpoint, squad_head, shared,
                                str(tmp_path), after, first_step=3)
  assert len(steps) == 3
  golden_training.check_steps(golden, steps, first_step=3)
  golden_training.check_checkpoint(golden, str(tmp_path), strong=True)
