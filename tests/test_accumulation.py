"""K micro-batches train what the whole batch trains at once."""
import pytest
import tensorflow.compat.v1 as tf

import golden_training
from tasks.squad_head import squad_head
from test_other_training import head_of

tf.logging.set_verbosity(tf.logging.ERROR)


@pytest.mark.slow
# Pre-training is the one whose weights differ from row to row, SQuAD the one
# with a variable that is not trained.
@pytest.mark.parametrize("task, num_replicas, accumulation_steps", [
    pytest.param("pretraining", 1, 2, marks=pytest.mark.once("tf1")),
    ("pretraining", 2, 4),
    pytest.param("squad", 1, 4, marks=pytest.mark.once("tf2"))])
def test_six_steps(shared, tmp_path, task, num_replicas, accumulation_steps):
  golden, checkpoint = golden_training.load(shared, task + "_strong")
  head = squad_head if task == "squad" else head_of(shared, task)
  steps = golden_training.train(
      golden, checkpoint, head, shared, str(tmp_path), num_replicas,
      accumulation_steps=accumulation_steps)
  golden_training.check_steps(golden, steps)
  golden_training.check_checkpoint(golden, str(tmp_path), strong=True)
