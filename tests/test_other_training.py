"""The classifier and pre-training heads on N replicas, see test_squad_training.

The pre-training rows have from 0 to 6 masked tokens, unevenly: the mean of the
replicas' means would be another loss.
"""
import pytest
import tensorflow.compat.v1 as tf

import golden_training
import modeling
from tasks.classifier_head import make_classifier_head
from tasks.pretraining_head import make_pretraining_head

tf.logging.set_verbosity(tf.logging.ERROR)


def head_of(shared, task):
  if task == "classifier":
    # The reference had no dropout anywhere.
    return make_classifier_head(num_labels=3, dropout_prob=0.0)
  return make_pretraining_head(modeling.BertConfig.from_json_file(
      str(shared / "golden" / "train" / "bert_config_nodropout.json")))


@pytest.mark.slow
# The tiny weights need one number of replicas: what they show beside the strong
# ones, how the gradient is clipped, does not depend on it.
@pytest.mark.parametrize("size, num_replicas", [
    pytest.param("tiny", 2, marks=pytest.mark.once("tf1")),
    ("strong", 1), ("strong", 2),
    pytest.param("strong", 4, marks=pytest.mark.long)])
@pytest.mark.parametrize("task", ["classifier", "pretraining"])
def test_six_steps(shared, tmp_path, task, size, num_replicas):
  golden, checkpoint = golden_training.load(shared, task + "_" + size)
  steps = golden_training.train(golden, checkpoint, head_of(shared, task),
                                shared, str(tmp_path), num_replicas)
  golden_training.check_steps(golden, steps)
  golden_training.check_checkpoint(golden, str(tmp_path), size == "strong")
