"""A checkpoint in the output folder that is not one of the model."""
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
from multigpu import fitting
from multigpu.errors import UserError
from multigpu.model_fn import ModelSettings, build_model_fn
from tasks import classifier_data
from tasks.classifier_head import make_classifier_head

CONFIG = modeling.BertConfig(
    vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=8, max_position_embeddings=8)


def shapes_of(num_labels=2, **changes):
  config = modeling.BertConfig.from_dict(dict(CONFIG.to_dict(), **changes))
  names = ["n%d" % i for i in range(num_labels)]
  return fitting.model_shapes(
      build_model_fn(make_classifier_head(num_labels), ModelSettings(config)),
      classifier_data.record_table(4, names))


def save(folder, shapes):
  with tf.Graph().as_default(), tf.Session() as session:
    for name, shape in shapes.items():
      tf.get_variable(name, initializer=np.zeros(shape, np.float32))
    session.run(tf.global_variables_initializer())
    return tf.train.Saver().save(session, str(folder / "model.ckpt"))


def with_slots(shapes):
  slots = {name + "/" + slot: shape for name, shape in shapes.items()
           for slot in ("adam_m", "adam_v")}
  return dict(shapes, global_step=(), **slots)


def test_shapes_are_those_of_the_model():
  shapes = shapes_of(num_labels=3)
  assert shapes["output_weights"] == (3, 8)
  assert shapes["bert/embeddings/word_embeddings"] == (9, 8)
  assert len(shapes) == 25


@pytest.mark.parametrize("is_training", [False, True])
def test_the_checkpoint_of_the_same_model_fits(tmp_path, is_training):
  shapes = shapes_of()
  # Half precision has stored its scale; another precision may go on from it.
  path = save(tmp_path, dict(with_slots(shapes), loss_scale=(),
                             loss_scale_good_steps=()))
  fitting.check(path, shapes, is_training)


def test_all_differences_are_in_one_message(tmp_path):
  theirs = with_slots(shapes_of(num_labels=3, num_hidden_layers=2))
  for name in list(theirs):
    if name.startswith("output_bias"):
      theirs["cls/other" + name[len("output_bias"):]] = theirs.pop(name)
  path = save(tmp_path, theirs)
  with pytest.raises(UserError) as error:
    fitting.check(path, shapes_of(), True)
  lines = str(error.value).splitlines()
  assert lines[0].startswith("--output_dir already holds " + path)
  assert lines[1:3] == ["  not in the checkpoint (1):", "    output_bias [2]"]
  # 16 variables a layer; their slots are not named.
  assert lines[3] == "  only in the checkpoint (17):"
  assert "    bert/encoder/layer_1/output/dense/kernel [8, 8]" in lines
  assert lines[-3:-1] == [
      "  of other shapes (1):",
      "    output_weights: [3, 8] in the checkpoint, [2, 8] here"]
  assert "another --output_dir, with --init_checkpoint=" + path in lines[-1]


def test_weights_alone_are_enough_to_predict_but_not_to_go_on(tmp_path):
  shapes = shapes_of()
  path = save(tmp_path, dict(shapes, global_step=()))
  fitting.check(path, shapes, False)
  with pytest.raises(UserError, match="not the state of a training"):
    fitting.check(path, shapes, True)
