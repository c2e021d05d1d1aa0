"""Times a SQuAD training step, also against other programs.

    .venv/tf2/bin/python benchmarks/train_step.py \\
        --bert_config_file .cache/minilm/bert_config.json \\
        --batch 16 --seq_length 256 --num_replicas 2 \\
        --against PATH_TO_BERT --against_python .venv/tf1/bin/python

    .venv/tf2/bin/python benchmarks/train_step.py --bert_config_file ... \\
        --against transformers --against_python PYTHON_WITH_TORCH

Each program runs in a process of its own, in turn, several times. Against a
checkout of Google's BERT both build BertModel, a span head and create_optimizer
through the API that they share, so that only the two modules differ. The first
step of a process is not counted. PATH_TO_BERT holds modeling.py and
optimization.py; its code needs TensorFlow 1.

The limit is the time that the step's matrix products alone take in the same
process, in the three shapes of forward and backward pass.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import processes
from step_rows import make_rows, peak_memory_mb, time_steps

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRANSFORMERS = "transformers"


def parse_arguments():
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--bert_config_file", required=True)
  parser.add_argument("--batch", type=int, default=16, help="global batch")
  parser.add_argument("--seq_length", type=int, default=256)
  parser.add_argument("--num_replicas", type=int, default=1,
                      help="CPU replicas of this project")
  parser.add_argument("--steps", type=int, default=3, help="steps a process")
  parser.add_argument("--runs", type=int, default=3, help="processes each")
  parser.add_argument("--against",
                      help="folder of Google's modules, or: transformers")
  parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32",
                      help="of this project and of transformers (autocast)")
  parser.add_argument("--against_python", default=sys.executable)
  parser.add_argument("--json", help="write the figures to this file")
  parser.add_argument("--child", help=argparse.SUPPRESS)
  arguments = parser.parse_args()
  if arguments.precision != "fp32" and arguments.against not in (
      None, TRANSFORMERS):
    parser.error("--precision=%s: Google's modules know fp32 only; leave "
                 "--against out, or pass --against=transformers." %
                 arguments.precision)
  return arguments


def build_step(modeling, optimization, config, rows):
  """The training op of one replica on its rows."""
  import tensorflow.compat.v1 as tf
  model = modeling.BertModel(
      config=config, is_training=True, input_ids=tf.constant(rows["input_ids"]),
      input_mask=tf.constant(rows["input_mask"]),
      token_type_ids=tf.constant(rows["segment_ids"]),
      use_one_hot_embeddings=False)
  hidden = model.get_sequence_output()
  weights = tf.get_variable("cls/squad/output_weights",
                            [2, config.hidden_size])
  logits = tf.reshape(tf.matmul(tf.reshape(
      hidden, [-1, config.hidden_size]), weights, transpose_b=True),
                      [len(rows["start"]), -1, 2])
  loss = sum(
      tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
          logits=logits[:, :, i], labels=rows[name])) / 2
      for i, name in enumerate(("start", "end")))
  return optimization.create_optimizer(loss, 1e-4, 1000, 100, False)


def run_child(arguments):
  """Prints [[wall, CPU] of each step] of the program in a folder."""
  sys.path.insert(0, arguments.child)
  if pathlib.Path(arguments.child) == ROOT:
    import multigpu  # noqa: F401  (oneDNN's kernels, before TensorFlow)
  import modeling
  import optimization
  import tensorflow.compat.v1 as tf
  config = modeling.BertConfig.from_json_file(arguments.bert_config_file)
  rows = make_rows(arguments.batch, arguments.seq_length, config.vocab_size)
  count = arguments.num_replicas
  session_config = tf.ConfigProto(device_count={"CPU": count})
  if arguments.precision != "fp32":
    from multigpu import session_options
    session_options.set_precision(session_config, arguments.precision, "CPU")
  with tf.Graph().as_default():
    if count == 1:
      train_op = build_step(modeling, optimization, config, rows)
    else:
      strategy = tf.distribute.MirroredStrategy(
          devices=["/cpu:%d" % i for i in range(count)])

      def replica():
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        if not isinstance(index, int):
          index = int(tf.get_static_value(index))
        size = arguments.batch // count
        part = slice(index * size, (index + 1) * size)
        return build_step(modeling, optimization, config,
                          {name: value[part] for name, value in rows.items()})

      with strategy.scope():
        train_op = strategy.group(
            strategy.extended.call_for_each_replica(replica))
    with tf.Session(config=session_config) as session:
      session.run(tf.global_variables_initializer())
      figures = time_steps(lambda: session.run(train_op), arguments.steps)
      memory = peak_memory_mb()
      num_ops = count_ops(session, train_op)
  print(json.dumps({
      "version": "TensorFlow " + tf.__version__,
      "figures": figures, "memory_mb": memory, "ops": num_ops,
      "limit_s": matrix_limit(config, arguments.batch, arguments.seq_length,
                              arguments.precision)}))


def count_ops(session, train_op):
  """Operations that one step executes on its devices."""
  import tensorflow.compat.v1 as tf
  metadata = tf.RunMetadata()
  session.run(train_op, run_metadata=metadata, options=tf.RunOptions(
      trace_level=tf.RunOptions.SOFTWARE_TRACE))
  return sum(len(device.node_stats)
             for device in metadata.step_stats.dev_stats
             if not device.device.startswith("/host"))


def matrix_limit(config, batch, seq_length, precision, repeats=5):
  """Seconds that the step's matrix products take by themselves."""
  import tensorflow.compat.v1 as tf
  dtype = tf.bfloat16 if precision == "bf16" else tf.float32
  rows, width = batch * seq_length, config.hidden_size
  inner = config.intermediate_size
  with tf.Graph().as_default():
    x, y, w = (
        tf.get_variable(name, shape, dtype, initializer=tf.ones_initializer())
        for name, shape in (("x", [rows, width]), ("y", [rows, inner]),
                            ("w", [width, inner])))
    # One number of each is read: TensorFlow leaves out what nobody reads.
    products = [product[0, 0] for product in (
        tf.matmul(x, w), tf.matmul(y, w, transpose_b=True),
        tf.matmul(x, y, transpose_a=True))]
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(products)
      seconds = []
      for _ in range(repeats):
        start = time.perf_counter()
        session.run(products)
        seconds.append(time.perf_counter() - start)
  # Multiplications, forward and backward, in units of one such product.
  layer = 4 * rows * width * width + 2 * rows * width * inner
  attention = 2 * rows * seq_length * width
  total = config.num_hidden_layers * (layer + attention)
  return statistics.median(seconds) * total / (rows * width * inner)


def make_command(arguments, python, folder, num_replicas):
  """The command of one process of a program."""
  here = pathlib.Path(__file__).resolve()
  if folder == TRANSFORMERS:
    command = [python, str(here.with_name("transformers_step.py"))]
  else:
    command = [python, str(here), "--child", str(folder),
               "--num_replicas", str(num_replicas)]
  for name in ("bert_config_file", "batch", "seq_length", "steps",
               "precision"):
    command += ["--" + name, str(getattr(arguments, name))]
  return command


def summarise(arguments, outcomes):
  """The figures of one program."""
  result = processes.summarise(outcomes, "memory_mb", "ops", "limit_s")
  result["version"] = outcomes[0]["version"]
  result["examples_per_s"] = arguments.batch / result["wall_s"]
  if "limit_s" in result:
    result["step_over_limit"] = result["wall_s"] / result["limit_s"]
  return result


def print_table(results):
  columns = (("wall_s", "wall s", "%.3f"), ("cpu_s", "CPU s", "%.3f"),
             ("examples_per_s", "ex./s", "%.2f"),
             ("limit_s", "limit s", "%.3f"),
             ("step_over_limit", "step/lim.", "%.2f"), ("ops", "ops", "%d"),
             ("memory_mb", "MB", "%.0f"))
  print("%-30s" % "a step" + "".join(
      " %9s" % title for _, title, _ in columns))
  for name, result in results.items():
    print("%-30s" % name + "".join(
        " %9s" % (form % result[key] if key in result else "")
        for key, _, form in columns))


def main():
  arguments = parse_arguments()
  if arguments.child:
    run_child(arguments)
    return
  commands = {"this project, %d replica(s)" % arguments.num_replicas:
              make_command(arguments, sys.executable, ROOT,
                           arguments.num_replicas)}
  if arguments.against:
    name = ("transformers on PyTorch" if arguments.against == TRANSFORMERS
            else "Google's modules, one device")
    commands[name] = make_command(arguments, arguments.against_python,
                                  arguments.against, 1)
  results = {
      name: summarise(arguments, outcomes) for name, outcomes in
      processes.run_in_turn(commands, arguments.runs).items()}
  print_table(results)
  if len(results) == 2:
    ours, theirs = results.values()
    print("this project / the other: %.2f wall, %.2f CPU" % (
        ours["wall_s"] / theirs["wall_s"], ours["cpu_s"] / theirs["cpu_s"]))
  processes.write_json(arguments.json, {
      "settings": {name: getattr(arguments, name) for name in (
          "bert_config_file", "batch", "seq_length", "num_replicas", "steps",
          "runs", "precision")},
      "programs": results})


if __name__ == "__main__":
  main()
